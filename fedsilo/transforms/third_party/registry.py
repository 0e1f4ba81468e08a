"""Transforms that packages offer, by name.

A package adds one with an entry point in the group `fedsilo.transforms`; its name there is the name in
`spec.transforms`. One that a document names is imported where a person has allowed it, as a method is
(`fedsilo.methods.registry`). No transform of fedsilo's own has a name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import closest_or, faults_of
from fedsilo.api.text import comma_separated
from fedsilo.api.transforms import TransformSpec
from fedsilo.errors import MethodError
from fedsilo.methods.registry import by_name, load_entry_point, require_config
from fedsilo.transforms.third_party.calls import call_package
from fedsilo.transforms.third_party.interface import TransformConfig, UpdateTransform

GROUP = "fedsilo.transforms"

FIELD = "spec.transforms"


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return by_name(entry_points(group=GROUP))


def names() -> list[str]:
    """All transforms that are installed, sorted."""
    return sorted(_entry_points())


def get(name: str) -> type[UpdateTransform]:
    """The class of a transform that is installed.

    :raises ImportNotAllowed: when a document names it that is only looked at, and nobody has allowed it.
    :raises MethodError: when its entry point has another form than a class's, does not load, is no transform, has
        another name, or its `Config` is no `TransformConfig`.
    """
    point = _entry_points()[name]
    declaration: type[UpdateTransform] = load_entry_point(
        point, "transform", f"{FIELD}: {name!r}", UpdateTransform
    )
    if (own := getattr(declaration, "name", None)) != name:
        raise MethodError(
            f"transform {name!r}: entry point {point.value} calls itself {own!r}; both must be one name"
        )
    require_config(f"transform {name}", declaration, TransformConfig)
    return declaration


def missing_transforms(spec: FederatedJobSpec) -> list[str]:
    """Transforms of the job that no installed package offers."""
    return [asked.name for asked in spec.transforms or () if asked.name not in _entry_points()]


def bind(spec: FederatedJobSpec) -> tuple[UpdateTransform, ...]:
    """The transforms of a job with their settings, in the order in which an update passes them.

    :raises ManifestFaults: when no installed package offers one, or with one line for each field that does not fit its
        `Config`.
    :raises ImportNotAllowed: see `get`, as for `MethodError`.
    """
    return tuple(bind_one(place, asked) for place, asked in enumerate(spec.transforms or ()))


def bind_one(place: int, asked: TransformSpec) -> UpdateTransform:
    """The transform at one place of `spec.transforms`.

    :raises ManifestFaults: see `bind`, as for all others.
    """
    if asked.name not in _entry_points():
        problem = "is not the name of a transform that is installed here"
        raise ManifestFaults(
            [Fault("", "", f"{FIELD}[{place}].name", asked.name, problem, _remedy(asked.name))]
        )
    declaration = get(asked.name)
    try:
        config = declaration.Config.model_validate(dict(asked.config))
    except ValidationError as error:
        document = f"transform {asked.name}"
        under = ("spec", "transforms", place, "config")
        faults = faults_of(error, declaration.Config, file="", document=document, under=under)
        raise ManifestFaults(faults) from error
    return call_package(asked.name, "__init__", lambda: declaration(config))


def _remedy(name: str) -> str:
    offers = f'install the package that offers it, in the group "{GROUP}" of its entry points'
    if not names():
        return f"{offers}; none is installed here"
    return closest_or(name, names(), f"installed are {comma_separated(names())}; otherwise {offers}")
