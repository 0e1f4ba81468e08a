"""A method that trains the model before another goes on with it: named in the other's configuration, with its own."""

from __future__ import annotations

from typing import Any

from fedsilo.api.job import FederatedJobSpec, MethodSpec
from fedsilo.errors import ManifestInvalid
from fedsilo.methods import registry
from fedsilo.methods.interface import Exchange, Method

FIELD = "spec.method.config.after"
"""Where a job names it."""


def of(after: MethodSpec) -> tuple[Method, Any]:
    """The method and its configuration.

    :raises ManifestInvalid: when there is none of the name, or it does not take the settings.
    """
    method = registry.get(after.name)
    return method, registry.parse(method, after.config)


def is_its_last(spec: FederatedJobSpec, after: MethodSpec, exchange: Exchange) -> bool:
    """Whether its model is trained once this exchange is over."""
    method, config = of(after)
    last = method.phases(spec, config)[-1]
    return exchange.phase.name == last.name and exchange.phase_round == exchange.phase_rounds


def check(spec: FederatedJobSpec, following: Method, after: MethodSpec) -> list[tuple[str, object, str, str]]:
    """It exists, likes its settings, yields one model of the job's architecture, and averages as the job does."""
    try:
        method, config = of(after)
    except ManifestInvalid as error:
        return [(FIELD, after.name, str(error), "name a method and settings that it knows")]
    faults = [(fault[0].replace("spec.method", FIELD), *fault[1:]) for fault in method.check(spec, config)]
    if type(method).architecture is not Method.architecture or method.name == following.name:
        faults.append(
            (f"{FIELD}.name", method.name, "does not yield one model", "use fedavg or a method like it")
        )
    rule = method.averaging(config)
    if rule != following.weights and spec.aggregation.weights is None:
        problem = f"is not set, and {method.name} averages by the rule {rule}"
        faults.append(("spec.aggregation.weights", None, problem, f"write {rule} here"))
    return faults
