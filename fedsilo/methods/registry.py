"""Methods by name: the built-in ones and those that third parties install.

A package adds a method with an entry point in the group `fedsilo.methods`; its name there is the name in
`spec.method.name`. Nothing else in fedsilo needs to change. No package takes the place of a built-in method, and one
that a document names is imported where a person has allowed it (`fedsilo.api.allowed_imports`).
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from fedsilo.api.allowed_imports import require_allowed
from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import closest_or, faults_of
from fedsilo.api.python_import import origin_of
from fedsilo.api.python_reference import python_reference
from fedsilo.api.text import first_line
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.methods.method import Method

GROUP = "fedsilo.methods"

BUILT_IN = "fedsilo.methods."
"""Where the modules of built-in methods lie."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@cache
def _entry_points() -> dict[str, EntryPoint]:
    points = [point for point in entry_points(group=GROUP) if _is_well_formed(point)]
    own = {point.name: point for point in points if point.module.startswith(BUILT_IN)}
    return {point.name: point for point in points} | own


def _is_well_formed(point: EntryPoint) -> bool:
    return _NAME.fullmatch(point.name) is not None and python_reference(point.value) is not None


def names() -> list[str]:
    """All known methods, sorted."""
    return sorted(_entry_points())


def get(name: str) -> type[Method]:
    """The declaration of a method, for listings; `bind` makes the method of a job.

    :raises ManifestInvalid: when no installed package offers it.
    :raises ImportNotAllowed: a third party's, named by a document that is only looked at, and allowed by nobody.
    :raises MethodError: when a third party's entry point does not load or is not a declaration.
    """
    point = _entry_points().get(name)
    if point is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ManifestInvalid(f"method {name!r} is not known; {hint}known methods: {', '.join(names())}")
    if (module := package_of(name)) is not None:
        require_allowed(
            module, point.attr, f"spec.method.name: {name!r}", origin_of(f"{module}:{point.attr}")
        )
    try:
        declaration = point.load()
    except (Exception, SystemExit) as error:
        raise MethodError(
            f"method {name!r}: entry point {point.value} does not load: {first_line(error)}"
        ) from error
    if not (isinstance(declaration, type) and issubclass(declaration, Method)):
        raise MethodError(
            f"method {name!r}: entry point {point.value} is a {type(declaration).__name__}, not a Method"
        )
    if missing := sorted(declaration.__abstractmethods__):
        raise MethodError(f"method {name!r}: entry point {point.value} does not define {', '.join(missing)}")
    return declaration


def package_of(name: str) -> str | None:
    """The module of a method of somebody else's package; None for a built-in one, and for one that is not known."""
    point = _entry_points().get(name)
    return None if point is None or point.module.startswith(BUILT_IN) else point.module


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
