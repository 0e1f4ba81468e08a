"""Methods by name: the built-in ones and those that third parties install.

A package adds a method with an entry point in the group `fedsilo.methods`; its name there is the name in
`spec.method.name`. Nothing else in fedsilo needs to change.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel, ValidationError

from fedsilo.api.faults import ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.words import faults_of
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.methods.interface import Method

GROUP = "fedsilo.methods"


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> list[str]:
    """All known methods, sorted."""
    return sorted(_entry_points())


def get(name: str) -> Method:
    """The declaration of a method.

    :raises ManifestInvalid: when no installed package offers it.
    :raises MethodError: when a third party's entry point does not load or is not a declaration.
    """
    point = _entry_points().get(name)
    if point is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ManifestInvalid(f"method {name!r} is not known; {hint}known methods: {', '.join(names())}")
    try:
        method = point.load()
    except Exception as error:
        raise MethodError(f"method {name!r}: entry point {point.value} does not load: {error}") from error
    if not isinstance(method, Method):
        raise MethodError(
            f"method {name!r}: entry point {point.value} is a {type(method).__name__}, not a Method"
        )
    return method


def parse(method: Method, config: Mapping[str, Any]) -> BaseModel:
    """A configuration of the method, parsed.

    :raises ManifestFaults: with one line for each field that does not fit the method's `Config`.
    """
    try:
        return method.Config.model_validate(dict(config))
    except ValidationError as error:
        where = ("spec", "method", "config")
        faults = faults_of(error, method.Config, file="", document=f"method {method.name}", under=where)
        raise ManifestFaults(faults) from error


def config_of(method: Method, spec: FederatedJobSpec) -> BaseModel:
    """The job's method configuration, parsed.

    :raises ManifestFaults: as `parse`.
    """
    return parse(method, spec.method.config)


def averaging_of(method: Method, spec: FederatedJobSpec) -> str:
    """The job's rule of averaging: the one that it names, or else the method's own for its configuration.

    :raises ManifestFaults: as `parse`.
    """
    return spec.aggregation.weights or method.averaging(config_of(method, spec))
