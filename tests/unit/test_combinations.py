"""What does not go together is refused in the same words by validation, the operator and a silo's guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.faults import Fault
from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import ManifestInvalid
from fedsilo.methods import registry
from fedsilo.transforms.conflicts import conflicts_of
from fedsilo.transforms.order import ORDER
from fedsilo.transforms.plan import JobPlan
from fedsilo.validation import validate
from hack.combinations import FEATURES, Feature, are_one_field, method_of, refusals, sections_of
from tests.unit.agent.scene import Scene
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import JOB_REF, manifest

Sections = Mapping[str, Any]

PAIRS = [
    pair
    for pair in combinations(FEATURES, 2)
    if not are_one_field(*pair) and list(conflicts_of(method_of(*pair)))
]
METHODS = [
    (feature, name)
    for name in ("ccvr", "fedconcat", "fedrep", "fednova", "fedproto", "groupdro", "statistics")
    for feature in FEATURES
    if list(conflicts_of(method_of(feature, method=name)))
]
NUMBERS: dict[str, tuple[str, Sections]] = {
    "sums over too few silos": ("fedavg", {"participation": {"fraction": 0.2}}),
    "two sums of a model": ("per-fedavg", {"participation": {"minSilos": 5}}),
    "sums of other means": ("fednova", {"aggregation": {"secure": True, "weights": "uniform"}}),
}
"""What sums have a meaning for by numbers of silos, or by weights, each in a job of sums only."""


def refused_by_validation(sections: Sections) -> list[str]:
    """What `fedsilo validate` says of the job, without where it stands."""
    found = validate([manifest() | {"spec": dict(sections)}])
    return [Fault("", "", each.path, each.value, each.problem, each.remedy).line() for each in found]


def refused_by_operator(sections: Sections) -> str:
    """The message of the condition with which the operator ends the job."""
    harness = JobHarness(manifest() | {"spec": dict(sections)}, silos=())
    harness.settle()
    found = harness.condition("Failed")
    assert found is not None
    assert found[:2] == ("True", "ManifestInvalid")
    return found[2]


@pytest.fixture(scope="module")
def refused_by_guard(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sections], str]:
    scene = Scene(tmp_path_factory.mktemp("scene"))

    def refusal_text(sections: Sections) -> str:
        check = scene.check_of(FederatedJobSpec.model_validate(sections))
        with pytest.raises(ManifestInvalid) as error:
            check.require_consistent()
        return str(error.value)

    return refusal_text


def assert_refused_alike(sections: Sections, guard: Callable[[Sections], str]) -> None:
    method = registry.bind(FederatedJobSpec.model_validate(sections))
    lines = [Fault("", "", *finding).line() for finding in conflicts_of(method)]
    assert lines, "nothing is refused"
    said, ended = refused_by_validation(sections), refused_by_operator(sections)
    for line in lines:
        assert line in said
        assert f"FederatedJob {JOB_REF.name}: {line}" in ended.splitlines()
    assert guard(sections) == lines[0]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(each.name for each in pair))
def test_features_that_do_not_go_together_are_refused_alike(
    pair: tuple[Feature, Feature], refused_by_guard: Callable[[Sections], str]
) -> None:
    assert_refused_alike(sections_of(*pair), refused_by_guard)


@pytest.mark.parametrize(("feature", "method"), METHODS, ids=lambda each: getattr(each, "name", each))
def test_features_that_do_not_go_with_a_method_are_refused_alike(
    feature: Feature, method: str, refused_by_guard: Callable[[Sections], str]
) -> None:
    assert_refused_alike(sections_of(feature, method=method), refused_by_guard)


@pytest.mark.parametrize("name", NUMBERS)
def test_what_sums_cannot_give_is_refused_alike(
    name: str, refused_by_guard: Callable[[Sections], str]
) -> None:
    method, sections = NUMBERS[name]
    written = Feature(name, "", {"aggregation": {"secure": True}, **sections})
    assert_refused_alike(sections_of(written, method=method), refused_by_guard)


def test_what_goes_together_is_refused_by_nobody(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for pair in combinations(FEATURES, 2):
        if not are_one_field(*pair) and not refusals(*pair):
            scene.check_of(FederatedJobSpec.model_validate(sections_of(*pair))).require_consistent()


def test_findings_come_in_the_order_of_the_transforms() -> None:
    """The noise of a silo first, which it has no matter who sums, then what sums cannot give."""
    named = {feature.name: feature for feature in FEATURES}
    method = method_of(*(named[name] for name in ("fewer bytes up", "noise for each silo", "sums only")))
    homes = [type(each) for each in JobPlan(method).transforms]
    assert homes == [kind for kind in ORDER if kind in homes]
    words = [problem for _, _, problem, _ in conflicts_of(method)]
    assert words[0].startswith("has tensors sent as parts, to which the guard cannot add noise")
    assert words[1:] == ["has no meaning with secure aggregation: a masked update cannot be compressed"]
    assert words == [problem for _, _, problem, _ in conflicts_of(method)]
