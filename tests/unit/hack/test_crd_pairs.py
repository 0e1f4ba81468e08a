"""What an API server refuses of features that do not go together: what validation refuses, in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsilo.methods import registry
from fedsilo.validation import validate
from hack import crd_pairs
from hack.combinations import FEATURES, Feature, Sections, refusals, sections_of
from hack.crd_pairs import (
    CEL_CONDITIONS,
    FEATURES_WITHOUT_CEL,
    Form,
    of_both,
    pair_rules,
    refused_pairs,
    ruled_pairs,
    why_none,
)
from hack.crds import RESOURCES, definition
from tests.unit.hack.cel import filled_value, holds
from tests.unit.operator.job.objects import manifest

(_VERSION,) = definition(RESOURCES[0])["spec"]["versions"]
SPECIFICATION = _VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]

REFUSED_PAIRS = refused_pairs()
RULED_PAIRS = list(ruled_pairs())

FEATURE_VARIANTS: Sequence[tuple[str, Sections]] = (
    ("fewer bytes up", {"communication": {"upload": {"compression": "zstd"}}}),
    ("fewer bytes up", {"communication": {"upload": {"encoding": "topk", "compression": None}}}),
    ("fewer bytes down", {"communication": {"download": {"compression": "zstd"}}}),
    ("local tensors", {"model": {"parameters": {"frozen": ["encoder.0.*"], "local": ["a", "b"]}}}),
    ("bfloat16", {"training": {"precision": "float16"}}),
    ("preprocessing", {"data": {"preprocessing": {"impute": "mean"}}}),
    ("a check of the data", {"data": {"check": "refuse"}}),
)
"""Other ways to have a feature of that name."""

NEAR_MISSES: Sequence[Sections] = (
    {"aggregation": {"secure": False}},
    {"aggregation": {"secure": None, "rule": None}},
    {"aggregation": {"weights": None}},
    {"aggregation": {"weights": "uniform"}},
    {"communication": None},
    {"communication": {"digest": "blake3"}},
    {"communication": {"upload": None, "download": None}},
    {"communication": {"upload": {}, "download": {"encoding": "float32"}}},
    {"data": {"preprocessing": None, "check": None}},
    {"evaluation": {"testDataset": None}},
    {"model": {"parameters": None}},
    {"model": {"parameters": {"shared": ["*"], "local": []}}},
    {"privacy": {"differentialPrivacy": None}},
    {"silos": {"selector": None}},
    {"training": {"precision": "float32", "trainer": None}},
    *(sections for _, sections in FEATURE_VARIANTS),
)
"""Sections that are near to those of a feature, or another way to have it."""


def broken_rules(sections: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Field and words of each rule that a specification breaks."""
    job = filled_value(sections, SPECIFICATION)
    return [(f"spec{rule.field}", rule.text) for rule in pair_rules() if not holds(rule.holds, job)]


def words(pair: Sequence[Feature]) -> list[tuple[str, str]]:
    """Field and words of what is wrong with a pair."""
    return [(path, f"{problem}; {remedy}") for path, _, problem, remedy in refusals(*pair)]


def job_of(*features: Feature, method: str = "fedavg") -> dict[str, Any] | None:
    """The specification of a job with these features; None where there is no such job."""
    try:
        return sections_of(*features, method=method)
    except ValidationError:
        return None


def leaves(value: Any) -> Iterator[Any]:
    """The values of all fields of sections."""
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(item)
    else:
        yield value


def name_of(forms: Sequence[Form]) -> str:
    return " and ".join(f"{form.feature.name} {form.value}".strip() for form in forms)


@pytest.mark.parametrize("pair", REFUSED_PAIRS, ids=lambda pair: " and ".join(each.name for each in pair))
def test_a_refused_pair_has_a_rule_or_a_reason_for_none(pair: tuple[Feature, Feature]) -> None:
    if FEATURES_WITHOUT_CEL.keys() & {feature.name for feature in pair}:
        assert why_none(*pair)
        assert broken_rules(sections_of(*pair)) == []
    else:
        assert broken_rules(sections_of(*pair)) == words(pair)


@pytest.mark.parametrize("forms", RULED_PAIRS, ids=name_of)
def test_a_rule_has_the_words_of_validation(forms: tuple[Form, Form]) -> None:
    pair = [form.feature for form in forms]
    sections = sections_of(*pair)
    found = validate([manifest() | {"spec": sections}])
    assert broken_rules(sections) == words(pair)
    assert set(broken_rules(sections)) <= {
        (fault.path, f"{fault.problem}; {fault.remedy}") for fault in found
    }


@pytest.mark.parametrize(("name", "sections"), FEATURE_VARIANTS, ids=str)
def test_a_feature_is_seen_however_a_job_has_it(name: str, sections: Sections) -> None:
    others = [
        [each.feature for each in forms if each.feature.name != name]
        for forms in RULED_PAIRS
        if name in {each.feature.name for each in forms}
    ]
    assert others
    for (other,) in others:
        pair = (other, Feature(name, "", sections))
        assert broken_rules(sections_of(*pair)) == words(pair) != []


def test_what_goes_together_breaks_no_rule() -> None:
    near = [Feature(str(sections), "", sections) for sections in NEAR_MISSES]
    for pair in combinations([*FEATURES, *near], 2):
        sections = job_of(*pair)
        if sections is not None and not refusals(*pair):
            assert broken_rules(sections) == [], [feature.name for feature in pair]


@given(
    st.lists(st.sampled_from([form.feature for forms in RULED_PAIRS for form in forms]), max_size=4),
    st.lists(st.sampled_from(NEAR_MISSES), max_size=2),
    st.sampled_from(registry.names()),
)
def test_a_job_that_breaks_a_rule_is_refused_for_the_same_field(
    features: list[Feature], near: list[Sections], method: str
) -> None:
    both = [*features, *(Feature("near", "", sections) for sections in near)]
    sections = job_of(*both, method=method)
    if sections is None:
        reject()
    found = {path for path, *_ in refusals(*both, method=method)}
    assert {path for path, _ in broken_rules(sections)} <= found


@pytest.mark.parametrize("name", registry.names())
def test_a_rule_is_as_true_of_every_method(name: str) -> None:
    for one, other in RULED_PAIRS:
        own = of_both(one.feature, other.feature)
        found = refusals(one.feature, other.feature, method=name)
        assert [finding for finding in own if finding not in found] == [], name_of((one, other))


@pytest.mark.parametrize("forms", RULED_PAIRS, ids=name_of)
def test_words_name_no_value_that_the_feature_can_have_others_of(forms: tuple[Form, Form]) -> None:
    values = {str(value) for form in forms for value in leaves(form.feature.written)}
    values -= {form.value for form in forms}
    for _, said in words([form.feature for form in forms]):
        assert not values & set(re.findall(r"[^\s,;:]+", said))


def test_nothing_is_seen_that_is_never_refused() -> None:
    assert {
        feature.name for pair in REFUSED_PAIRS for feature in pair
    } == CEL_CONDITIONS.keys() | FEATURES_WITHOUT_CEL.keys()
    assert not CEL_CONDITIONS.keys() & FEATURES_WITHOUT_CEL.keys()


def test_a_feature_of_which_nothing_is_said_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        crd_pairs,
        "CEL_CONDITIONS",
        {name: seen for name, seen in CEL_CONDITIONS.items() if name != "bfloat16"},
    )
    with pytest.raises(
        LookupError,
        match=r"^bfloat16: .*; add it to CEL_CONDITIONS, or to FEATURES_WITHOUT_CEL with a reason$",
    ):
        pair_rules.__wrapped__()
