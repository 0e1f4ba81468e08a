"""What a job with `unit: silo` comes to: parts of the noise, epsilon, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from fedsilo.api.faults import Finding
from fedsilo.api.job import SilosSpec
from fedsilo.errors import ManifestInvalid
from fedsilo.methods.method import Method
from fedsilo.methods.registry import names
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.transforms.conflicts import check_job, require_consistent
from fedsilo.transforms.update_noise.conflicts import uncovered_silo
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy
from tests.federate import bound_method, job_spec
from tests.unit.methods.test_differential_privacy import TEST_SET

UNIT = {"unit": "silo", "noiseMultiplier": 3.0, "delta": 0.01, "maxUpdateNorm": 2.0}


def private_method(
    method: str = "fedavg", silos: int = 20, given: Mapping[str, Any] = UNIT, **sections: Any
) -> Method:
    """A job with `unit: silo`; sections are merged over what it needs."""
    whole = {"aggregation": {"weights": "uniform"}, "privacy": {"differentialPrivacy": dict(given)}}
    return bound_method(method, silos, 5, **{**TEST_SET, **whole, **sections})


def privacy_findings(method: Method) -> list[Finding]:
    return [fault for fault in check_job(method) if "differentialPrivacy" in fault[0] or "silo" in fault[2]]


def update_privacy(**sections: Any) -> UpdatePrivacy:
    of_job = UpdatePrivacy.of_job(private_method(**sections).spec)
    assert of_job is not None
    return of_job


def test_the_parts_of_as_many_silos_as_a_round_needs_make_up_the_noise() -> None:
    everyone, few = update_privacy(), update_privacy(participation={"minSilos": 4})
    drawn = update_privacy(participation={"fraction": 0.25})
    assert (everyone.quorum, few.quorum, drawn.quorum) == (20, 4, 5)
    for each in (everyone, few, drawn):
        assert math.sqrt(each.quorum) * each.deviation == pytest.approx(3.0 * 2.0)


def test_one_update_hides_an_example_by_its_own_noise_alone() -> None:
    """A budget is charged so where there is no secure sum."""
    each = update_privacy(participation={"minSilos": 16})
    assert each.of_one_example == Mechanism(3.0 / (2 * 4))
    charged = epsilon_of([each.of_one_example] * 5, 1e-3)
    assert each.example_epsilon(1e-3) == pytest.approx(charged, rel=0.01)


def test_a_secure_sum_hides_an_example_by_the_noise_of_a_quorum() -> None:
    each = update_privacy(participation={"minSilos": 16}, aggregation={"weights": "uniform", "secure": True})
    assert each.of_one_example.noise_multiplier == pytest.approx(3.0 / 2)
    assert each.deviation == pytest.approx(3.0 * 2.0 / 4), "of each silo as without"


def test_noise_follows_from_epsilon_over_all_rounds() -> None:
    target = {"unit": "silo", "epsilon": 8, "delta": 0.01, "maxUpdateNorm": 1.0}
    of_target = update_privacy(given=target)
    assert epsilon_of([Mechanism(of_target.noise_multiplier, 1.0, 5)], 0.01) == pytest.approx(8, rel=0.01)


def test_jobs_about_examples_and_without_privacy_have_none() -> None:
    given = {"unit": "example", "epsilon": 1, "delta": 0.01}
    assert UpdatePrivacy.of_job(job_spec("fedavg", 2)) is None
    assert UpdatePrivacy.of_job(private_method(given=given).spec) is None


def test_a_job_has_no_fault_whatever_the_silos_train_by() -> None:
    for method in ("fedavg", "fedavgm", "fedopt", "fedprox", "moon", "fedrs"):
        assert privacy_findings(private_method(method)) == [], method
    assert (
        privacy_findings(private_method(training={"trainer": "python:a.b:c", "precision": "bfloat16"})) == []
    )


def test_methods_that_are_covered_send_models_in_their_rounds_and_nothing_else() -> None:
    covered = [method for name in names() if uncovered_silo(method := private_method(name)) is None]
    assert {method.name for method in covered} >= {"fedavg", "fedavgm", "fedopt", "fedprox", "moon"}
    for method in covered:
        assert {payload.kind for step in method.steps().values() for payload in step.payloads} == {"model"}
        assert sum(phase.rounds for phase in method.phases()) == method.spec.training.rounds == 5
        assert not any(phase.everyone for phase in method.phases())


def test_a_guard_takes_nothing_of_a_job_that_validation_refuses() -> None:
    require_consistent(private_method())
    require_consistent(bound_method("fedavg", 2))
    for job in (
        private_method("scaffold"),
        private_method(aggregation={}),
        private_method(data={"check": "report"}),
    ):
        with pytest.raises(ManifestInvalid, match="; "):
            require_consistent(job)


REFUSED_JOBS: list[tuple[str, Mapping[str, Any], str]] = [
    ("scaffold", {}, "differentialPrivacy: .*does not cover method scaffold, whose aggregate.*another unit"),
    ("ditto", {}, "does not cover method ditto, in which scores of silos' own models leave"),
    ("ccvr", {}, "does not cover method ccvr"),
    ("fedavg", {"aggregation": {}}, "aggregation.weights: .*is not uniform.*write uniform"),
    ("fedavg", {"aggregation": {"weights": "samples"}}, "aggregation.weights: samples: .*write uniform"),
    (
        "fedavg",
        {"aggregation": {"weights": "uniform", "rule": {"name": "median"}}},
        "aggregation.rule.name: median: looks at single silos",
    ),
    ("fedavg", {"communication": {"upload": {"encoding": "int8"}}}, "communication.upload: .*int8"),
    ("fedavg", {"communication": {"download": {"encoding": "bfloat16"}}}, "communication.download: .*bfloat"),
    ("fedavg", {"given": {**UNIT, "delta": 0.05}}, "delta: 0.05: is not below one over the 20 silos.*0.05"),
    ("fedavg", {"silos": {"refs": [], "selector": {"matchLabels": {"a": "b"}}}}, "name them in"),
    ("fedavg", {"data": {"preprocessing": {"standardise": True}}}, "data.preprocessing"),
    ("fedavg", {"data": {"check": "report"}}, "data.check"),
    ("fedavg", {"evaluation": {"testDataset": None}}, "evaluation.testDataset"),
    (
        "fedavg",
        {"training": {"trainer": "python:a.b:c", "trainerMetrics": ["auc"]}},
        "training.trainerMetrics: .*no figures",
    ),
    (
        "fedavg",
        {"model": {"name": "resnet8", "config": {}}, "data": {"inputShape": [3, 8, 8]}},
        "spec.model.name: resnet8: has BatchNorm.*GroupNorm",
    ),
]


@pytest.mark.parametrize(
    ("method", "given", "line"), REFUSED_JOBS, ids=[line[:40] for _, _, line in REFUSED_JOBS]
)
def test_what_the_noise_does_not_cover_is_refused(method: str, given: Mapping[str, Any], line: str) -> None:
    sections = {name: section for name, section in given.items() if name != "silos"}
    job = private_method(method, **sections)
    if "silos" in given:
        silos = SilosSpec.model_validate(given["silos"])
        job.spec = job.spec.model_copy(update={"silos": silos})
    text = "\n".join(
        f"{path}: {value}: {problem}; {remedy}" for path, value, problem, remedy in check_job(job)
    )
    assert re.search(line, text), text
