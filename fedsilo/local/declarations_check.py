"""What only a package's own code can say of a job: whether its method has both halves, and what is sent of the model.

`fedsilo.validation` does not ask it: a half may import torch, and what is sent follows from the model's tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.errors import FedsiloError, ImportNotAllowed, MethodError
from fedsilo.local.job_model import model_without_data
from fedsilo.methods import registry
from fedsilo.methods.method import Method, declaring
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import ModelSignature

VERBS = ("start", "assign", "aggregate", "model")
"""What a server half has."""


def require_declarations(federation: JobManifest) -> str | None:
    """Return if method and transforms of other packages say all that a run asks of them; of built-in ones tests know.

    :param federation: without other faults.
    :returns: why not all of it could be asked here; None where it was.
    :raises ManifestFaults: with what is wrong with the method, or else with the transforms.
    """
    job, spec = federation.job, federation.job.spec
    own = registry.package_of(spec.method.name) is not None
    try:
        unasked = _ask_method(registry.bind(spec.model_copy(update={"transforms": None}))) if own else None
    except MethodError as error:
        remedy = "mend or remove the package that offers it"
        raise _cannot_be_used(federation, "spec.method.name", spec.method.name, error, remedy) from error
    try:
        return _ask_what_is_sent(registry.bind(spec)) if spec.transforms else unasked
    except MethodError as error:
        names, remedy = [asked.name for asked in job.spec.transforms or ()], "mend the package, or remove it"
        raise _cannot_be_used(federation, "spec.transforms", names, error, remedy) from error


def _cannot_be_used(
    federation: JobManifest, path: str, value: object, error: MethodError, remedy: str
) -> ManifestFaults:
    fault: Fault = federation.fault(federation.job, path, value, f"cannot be used: {error}", remedy)
    return ManifestFaults([fault])


def _ask_method(method: Method) -> str | None:
    """Ask for its halves, and for what it sends.

    :returns: why that could not be asked here.
    :raises MethodError: when the method does not say it.
    """
    with declaring(method):
        try:
            _require_halves(method)
        except ModuleNotFoundError as missing:
            if missing.name != "torch":
                raise
            return f"method {method.name} imports torch, which is not installed here"
    return _ask_what_is_sent(method)


def _require_halves(method: Method) -> None:
    server, silo, name = method.server(), method.silo(), method.name
    if absent := [verb for verb in VERBS if not callable(getattr(server, verb, None))]:
        raise MethodError(
            f"server of method {name} returned a {type(server).__name__}, which has no {absent[0]}; return the server "
            f"half, with {', '.join(VERBS)}"
        )
    if not isinstance(silo, Mapping):
        raise MethodError(
            f"silo of method {name} returned a {type(silo).__name__}; return a function for each step by its name"
        )
    for step in _own_steps(JobPlan(method)):
        if not callable(silo.get(step)):
            has = ", ".join(map(str, silo)) or "none"
            raise MethodError(
                f"silo of method {name} returned no function for step {step!r}, which its phases ask for, but for "
                f"{has}; add it"
            )


def _own_steps(plan: JobPlan) -> Iterator[str]:
    """Steps of the job that silo halves answer."""
    steps = dict.fromkeys(exchange.phase.step for exchange in plan.exchanges)
    return (step for step in steps if plan.owner(step) is None)


def _ask_what_is_sent(method: Method) -> str | None:
    """Derive what silos may send, as guard and aggregator do.

    :returns: why that could not be done here.
    :raises MethodError: when method or transforms do not say it, or say what cannot be.
    """
    try:
        signature = _signature(method.spec)
    except ImportNotAllowed as refused:
        return str(refused)
    except FedsiloError as error:  # of the model, of which the run says it
        return f"there is no model ({error})"
    if signature is None:
        return "the model of the job cannot be built here"
    with declaring(method):
        try:
            method.dimensions(signature, {})
        except KeyError as unknown:
            return f"a dimension follows from {unknown} of the settings, which a job has only as it runs"
        plan = JobPlan(method)
        for step in _own_steps(plan):
            plan.contract(step, signature, {})
    return None


def _signature(spec: FederatedJobSpec) -> ModelSignature | None:
    """What silos share of the job's model."""
    model = model_without_data(spec)
    if model is None:
        return None
    from fedsilo.learning.models import signature
    from fedsilo.learning.parameters import parts_of
    from fedsilo.tasks.registry import bind

    whole, parts = signature(model, bind(spec.task, spec.data)), parts_of(spec.model.parameters, model)
    return parts.signature(whole) if parts else whole
