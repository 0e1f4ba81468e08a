"""Methods by name, the built-in ones and those that third parties install.

A package adds a method with an entry point in the group `fedsilo.methods`; its name there is the name in
`spec.method.name`. Nothing else in fedsilo needs to change. No package takes the place of a built-in method, and one
that a document names is imported where a person has allowed it (`fedsilo.api.allowed_imports`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from fedsilo.api.allowed_imports import require_allowed
from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import closest_or, faults_of
from fedsilo.api.python_import import origin_of
from fedsilo.api.python_reference import is_dotted, python_reference
from fedsilo.api.text import first_line
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.methods.interface import MethodConfig
from fedsilo.methods.method import Method

GROUP = "fedsilo.methods"

BUILT_IN = "fedsilo.methods."
"""Where the modules of built-in methods lie."""

_OF_A_PACKAGE = f"a package offers another in the group {GROUP} of its entry points"

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return by_name(entry_points(group=GROUP))


def by_name(points: Iterable[EntryPoint]) -> dict[str, EntryPoint]:
    """The entry points of a group that documents can name."""
    found = [point for point in points if _NAME.fullmatch(point.name)]
    # One that cannot be imported takes no name from one that can, and none takes that of a built-in method.
    found.sort(key=lambda point: ((known := _reference(point)) is not None, _is_built_in(known)))
    return {point.name: point for point in found}


@cache
def _reference(point: EntryPoint) -> tuple[str, str] | None:
    """Module and name in it of an entry point, without the class inside that name or extras; None of another form."""
    found = EntryPoint.pattern.match(point.value)
    if found is None or found["attr"] is None or not is_dotted(found["attr"]):
        return None
    return python_reference(f"{found['module']}:{found['attr'].partition('.')[0]}")


def _is_built_in(reference: tuple[str, str] | None) -> bool:
    return reference is not None and reference[0].startswith(BUILT_IN)


def names() -> list[str]:
    """All known methods, sorted."""
    return sorted(_entry_points())


def get(name: str) -> type[Method]:
    """The declaration of a method, for listings; `bind` makes the method of a job.

    :raises ManifestInvalid: when no installed package offers it.
    :raises ImportNotAllowed: a third party's, named by a document that is only looked at, and allowed by nobody.
    :raises MethodError: when a third party's entry point has another form than a class's, does not load or is not a
        declaration, or its `Config` is no `MethodConfig`.
    """
    point = _entry_points().get(name)
    if point is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ManifestInvalid(f"method {name!r} is not known; {hint}known methods: {', '.join(names())}")
    declaration: type[Method] = load_entry_point(point, "method", f"spec.method.name: {name!r}", Method)
    require_config(f"method {name}", declaration, MethodConfig)
    return declaration


def require_config(what: str, declaration: type[Any], base: type[MethodConfig]) -> None:
    """Check that what a job may set is read strictly, so that a misspelt field is not left out in silence.

    :param what: it is, as messages begin.
    :raises MethodError: when `Config` of the declaration is none that derives from the base.
    """
    config = getattr(declaration, "Config", None)
    if not (isinstance(config, type) and issubclass(config, base)):
        found = config.__qualname__ if isinstance(config, type) else repr(config)
        raise MethodError(
            f"{what}: Config of {declaration.__qualname__} is {found}; let it be a class that derives from "
            f"{base.__name__}, which refuses fields that it does not have"
        )


def load_entry_point(point: EntryPoint, what: str, subject: str, base: type[object]) -> type[Any]:
    """The class that an entry point names.

    :param what: it is, as messages have it.
    :param subject: what names it, as messages begin that ask for permission.
    :param base: of what it is a subclass, without anything abstract.
    :raises ImportNotAllowed: a third party's, named by a document that is only looked at, and allowed by nobody.
    :raises MethodError: when it has another form, does not load or is no such class.
    """
    where = f"{what} {point.name!r}: entry point"
    reference = _reference(point)
    if reference is None:
        raise MethodError(
            f"{where} {point.value!r} names no class; whoever offers it must write package.module:Class"
        )
    if not _is_built_in(reference):
        require_allowed(*reference, subject, origin_of(":".join(reference)))
    try:
        declaration = point.load()
    except (Exception, SystemExit) as error:
        raise MethodError(f"{where} {point.value} does not load: {first_line(error)}") from error
    if not (isinstance(declaration, type) and issubclass(declaration, base)):
        raise MethodError(f"{where} {point.value} is a {type(declaration).__name__}, not a {base.__name__}")
    missing: frozenset[str] = getattr(declaration, "__abstractmethods__", frozenset())
    if missing:
        raise MethodError(f"{where} {point.value} does not define {', '.join(sorted(missing))}")
    return declaration


def package_of(name: str) -> str | None:
    """The module of a method of somebody else's package; None for a built-in one, and for one that is not known."""
    point = _entry_points().get(name)
    if point is None or _is_built_in(_reference(point)):
        return None
    return point.value.partition(":")[0].strip()


def permission_of(name: str) -> str | None:
    """What a person allows to be imported who names this method: `module:attribute`; None where that needs nothing."""
    point = _entry_points().get(name)
    reference = None if point is None else _reference(point)
    return None if reference is None or _is_built_in(reference) else ":".join(reference)


def bind(spec: FederatedJobSpec) -> Method:
    """The method of a job, with its configuration parsed.

    :raises ManifestFaults: when no installed package offers it, or with one line for each field that does not fit the
        method's `Config`.
    :raises MethodError: when a third party's entry point does not load or is not a declaration.
    """
    name = spec.method.name
    if name not in _entry_points():
        remedy = closest_or(name, names(), f"`fedsilo methods` describes them; {_OF_A_PACKAGE}")
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
