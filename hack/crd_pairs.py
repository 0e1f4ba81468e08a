"""Features that do not go together, as the API server refuses them: rules in CEL, in the words of validation.

Which pairs are refused, at which field and in which words is asked of `hack.combinations`, that is of the transforms'
`conflicts`. What is written here is how CEL sees that a job has a feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, product
from typing import Final

from fedsilo.api.aggregation import FIELDS, RuleName
from fedsilo.api.faults import Finding
from hack.combinations import (
    FEATURES,
    UNIFORM_WEIGHTS,
    Feature,
    Sections,
    are_one_field,
    merge_sections,
    refusals,
)
from hack.crd_rule import Rule

Pair = tuple[Feature, Feature]


@dataclass(frozen=True)
class CelCondition:
    """How CEL sees a feature in a specification `self`, once the API server has filled the defaults in.

    :param holds: whether the job says anything of it.
    :param value: which then says whether it is this feature, and may be named in the words; empty where any is.
    :param written: each such value -> what a job with it writes over what the feature does.
    :param beside: what some value needs elsewhere.
    """

    holds: str
    value: str
    written: Mapping[str, Sections]
    beside: Sections = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """A feature with one of its values.

    :param seen: `holds` and `value` of how CEL sees it.
    """

    feature: Feature
    seen: tuple[str, str]
    value: str


_COMMUNICATION: Final = "self.communication"
_PARAMETERS: Final = "self.model.parameters"
_PRIVACY_FIELD: Final = "self.privacy.differentialPrivacy"
_RULE: Final = "self.aggregation.rule"
_SECURE_FIELD: Final = "self.aggregation.secure"
_WEIGHTS: Final = "self.aggregation.weights"


def _whatever(holds: str) -> CelCondition:
    """A feature that is the same whatever value it has."""
    return CelCondition(holds, "", {"": {}})


def _presence_condition(field: str) -> CelCondition:
    return _whatever(f"has({field})")


def _noise(unit: str) -> CelCondition:
    return CelCondition(f"has({_PRIVACY_FIELD})", f"{_PRIVACY_FIELD}.unit", {unit: {}})


def _encoding_condition(direction: str) -> CelCondition:
    given = f"{_COMMUNICATION}.{direction}"
    encoded = f"({given}.encoding != 'float32' || has({given}.compression))"
    return _whatever(f"has({_COMMUNICATION}) && has({given}) && {encoded}")


def _rules(*names: RuleName) -> CelCondition:
    needed = {name: {needs: 1} if (needs := FIELDS[name]) else {} for name in names}
    written: Mapping[str, Sections] = {
        name: {"aggregation": {"rule": {"name": name, **more}}} for name, more in needed.items()
    }
    return CelCondition(f"has({_RULE})", f"{_RULE}.name", written, UNIFORM_WEIGHTS)


CEL_CONDITIONS: Final[Mapping[str, CelCondition]] = {
    "sums only": _whatever(f"has({_SECURE_FIELD}) && {_SECURE_FIELD}"),
    "noise for each example": _noise("example"),
    "noise for each person": _noise("person"),
    "noise for each silo": _noise("silo"),
    "clipped changes": _rules("norm-clipping"),
    "another robust rule": _rules(*(name for name in FIELDS if name != "norm-clipping")),
    "weights by samples": CelCondition(f"has({_WEIGHTS})", _WEIGHTS, {"samples": {}}),
    "fewer bytes up": _encoding_condition("upload"),
    "fewer bytes down": _encoding_condition("download"),
    "local tensors": _whatever(f"has({_PARAMETERS}) && {_PARAMETERS}.local.size() > 0"),
    "a training of one's own": _presence_condition("self.training.trainer"),
    "bfloat16": _whatever("self.training.precision != 'float32'"),
    "preprocessing": _presence_condition("self.data.preprocessing"),
    "a check of the data": _presence_condition("self.data.check"),
    "a test set": _presence_condition("self.evaluation.testDataset"),
    "silos by label": _presence_condition("self.silos.selector"),
}
"""Feature, by its name -> how CEL sees it."""

FEATURES_WITHOUT_CEL: Final[Mapping[str, str]] = {
    "BatchNorm": "is of the architecture, which an API server does not know",
}
"""Feature that CEL does not see, by its name -> why."""


@cache
def refused_pairs() -> tuple[Pair, ...]:
    """The pairs of features that do not go together."""
    return tuple(pair for pair in combinations(FEATURES, 2) if not are_one_field(*pair) and refusals(*pair))


def why_none(one: Feature, other: Feature) -> str:
    """Why a pair that is refused has no rule of its own, a clause; empty where it has one."""
    for feature in (one, other):
        if feature.name in FEATURES_WITHOUT_CEL:
            return f"{feature.name} {FEATURES_WITHOUT_CEL[feature.name]}"
    third = "one of them needs a third feature, of which the rule is"
    return "" if of_both(one, other) else third


@cache
def of_both(one: Feature, other: Feature) -> list[Finding]:
    """What is wrong with a job of both, without what already is with one of them and the other's company."""
    company = [*refusals(replace(one, written={}), other), *refusals(one, replace(other, written={}))]
    return [finding for finding in refusals(one, other) if finding not in company]


@cache
def pair_rules() -> tuple[Rule, ...]:
    """The rules of a job's specification.

    :raises LookupError: where a feature of a refused pair is neither seen nor said to be unseen.
    """
    said: dict[tuple[tuple[str, str], ...], dict[str, list[str]]] = {}
    for one, other in ruled_pairs():
        for path, _, problem, remedy in of_both(one.feature, other.feature):
            where = ((path, f"{problem}; {remedy}"), one.seen, other.seen)
            said.setdefault(where, {}).setdefault(one.value, []).append(other.value)
    return tuple(
        Rule(f"!({_has(one, ones)} && {_has(other, others)})", text, path.removeprefix("spec"))
        for ((path, text), one, other), values in said.items()
        for ones, others in _grouped_values(values)
    )


def ruled_pairs() -> Iterator[tuple[Form, Form]]:
    """Each two features that have a rule, with each of their values; errors as `pair_rules`."""
    for one, other in refused_pairs():
        if not why_none(one, other):
            yield from product(forms(one), forms(other))


def forms(feature: Feature) -> Iterator[Form]:
    """The feature with each of its values.

    :raises LookupError: where nothing is known of it.
    """
    if feature.name not in CEL_CONDITIONS:
        problem = "is refused beside another feature, and nothing says how an API server sees it"
        raise LookupError(
            f"{feature.name}: {problem}; add it to CEL_CONDITIONS, or to FEATURES_WITHOUT_CEL with a reason"
        )
    seen = CEL_CONDITIONS[feature.name]
    for value, written in seen.written.items():
        whole = merge_sections(feature.written, written), merge_sections(feature.beside, seen.beside)
        yield Form(Feature(feature.name, feature.place, *whole), (seen.holds, seen.value), value)


def _grouped_values(values: Mapping[str, Sequence[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """Values of one feature, together where they are refused beside the same values of another."""
    for others in dict.fromkeys(map(tuple, values.values())):
        yield [value for value, beside in values.items() if tuple(beside) == others], list(others)


def _has(seen: tuple[str, str], values: list[str]) -> str:
    """Whether a job has a feature with one of these values, in CEL."""
    holds, value = seen
    if not value:
        return holds
    return f"{holds} && {value} == '{values[0]}'" if len(values) == 1 else f"{holds} && {value} in {values}"
