"""Methods by name: the built-in ones and those that third parties install.

A package adds a method with an entry point in the group `fedsilo.methods`; its name there is the name in
`spec.method.name`. Nothing else in fedsilo needs to change.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import closest_or, faults_of
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.methods.method import Method

GROUP = "fedsilo.methods"


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> list[str]:
    """All known methods, sorted."""
    return sorted(_entry_points())


def get(name: str) -> type[Method]:
    """The declaration of a method, for listings; `bind` makes the method of a job.

    :raises ManifestInvalid: when no installed package offers it.
    :raises MethodError: when a third party's entry point does not load or is not a declaration.
    """
    point = _entry_points().get(name)
    if point is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ManifestInvalid(f"method {name!r} is not known; {hint}known methods: {', '.join(names())}")
    try:
        declaration = point.load()
    except Exception as error:
        raise MethodError(f"method {name!r}: entry point {point.value} does not load: {error}") from error
    if not (isinstance(declaration, type) and issubclass(declaration, Method)):
        raise MethodError(
            f"method {name!r}: entry point {point.value} is a {type(declaration).__name__}, not a Method"
        )
    if missing := sorted(declaration.__abstractmethods__):
        raise MethodError(f"method {name!r}: entry point {point.value} does not define {', '.join(missing)}")
    return declaration


def bind(spec: FederatedJobSpec) -> Method:
    """The method of a job, with its configuration parsed.

    :raises ManifestFaults: when no installed package offers it, or with one line for each field that does not fit the
        method's `Config`.
    :raises MethodError: when a third party's entry point does not load or is not a declaration.
    """
    name = spec.method.name
    if name not in names():
        remedy = closest_or(name, names(), "`fedsilo methods` describes them")
        raise ManifestFaults([Fault("", "", "spec.method.name", name, "is not a known method", remedy)])
    declaration = get(name)
    try:
        config = declaration.Config.model_validate(dict(spec.method.config))
    except ValidationError as error:
        where = ("spec", "method", "config")
        faults = faults_of(
            error, declaration.Config, file="", document=f"method {declaration.name}", under=where
        )
        raise ManifestFaults(faults) from error
    return declaration(spec, config)
