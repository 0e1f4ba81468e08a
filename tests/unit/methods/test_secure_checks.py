"""Jobs that ask for sums alone and for what sums cannot give are refused, each with what would."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods import registry
from fedsilo.methods.registry import names
from fedsilo.transforms.conflicts import check_job
from tests.federate import bound_method
from tests.unit.methods.test_differential_privacy import TEST_SET

CLUSTER_CONFIG = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 2}


def faults(method: str = "fedavg", silos: int = 4, **sections: Any) -> str:
    secure = {"secure": True} | sections.pop("aggregation", {})
    job = bound_method(
        method, silos, 3, sections.pop("config", {}), **{**TEST_SET, "aggregation": secure, **sections}
    )
    return "\n".join(f"{path}: {problem}; {remedy}" for path, _, problem, remedy in check_job(job))


def test_a_job_of_means_is_accepted() -> None:
    assert faults() == ""
    assert faults(evaluation={}, aggregator={}) == "", "silos' scores are summed"
    assert faults("fedconcat", config=CLUSTER_CONFIG, aggregation={"secure": None}) == ""


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"silos": 2}, "spec.aggregation.secure: is asked of 2 silos in each round"),
        ({"participation": {"fraction": 0.5}}, "is asked of 2 silos in each round"),
        (
            {"participation": {"minSilos": 1}},
            "spec.participation.minSilos: permits a sum over 1 silos, and from a sum",
        ),
        ({"participation": {"minSilos": 2}}, "use 3 or more"),
        (
            {"silos": 6, "participation": {"minSilos": 3}},
            "spec.participation.minSilos: is no more than half of the 6 silos",
        ),
        (
            {
                "silos": 6,
                "participation": {"fraction": 0.5, "minSilos": 3},
                "evaluation": {},
                "aggregator": {},
            },
            "of the 6 silos that are asked together, so that two lists of survivors might both be unmasked, and their "
            "difference shows one silo; remove it, so that all of them must answer",
        ),
        ({"method": "scaffold", "silos": 3}, "in scaffold two sums with different weights are seen"),
        ({"method": "scaffold", "participation": {"minSilos": 3}}, "use 4 or more"),
        ({"silos": 257}, "spec.silos.refs: are more than 256 silos"),
        (
            {"aggregation": {"rule": {"name": "median"}}},
            "use norm-clipping, which each silo's guard does by itself",
        ),
        (
            {
                "aggregation": {"rule": {"name": "norm-clipping", "norm": 1.0}},
                "communication": {"download": {"encoding": "int8"}},
            },
            "spec.communication.download.encoding: leaves guards without the model itself",
        ),
        ({"communication": {"upload": {"encoding": "int8"}}}, "a masked update cannot be compressed"),
        ({"method": "groupdro"}, "whose aggregator reads single silos' updates"),
        (
            {"method": "fedconcat", "config": CLUSTER_CONFIG},
            "for fedconcat, whose aggregator reads single silos' updates",
        ),
        (
            {"method": "scaffold", "config": {"variant": "feddyn"}},
            "for scaffold, whose aggregator reads single",
        ),
        (
            {"method": "feddyn", "config": {"variant": "released"}},
            "for feddyn, whose aggregator reads single",
        ),
    ],
)
def test_what_sums_cannot_give_is_refused(sections: dict[str, Any], line: str) -> None:
    assert line in faults(**sections)


@pytest.mark.parametrize(
    ("name", "weights", "told"),
    [
        ("fednova", "uniform", "averages models otherwise than sums average figures, which is by samples"),
        ("feddyn", "samples", "averages models otherwise than feddyn averages memories, which sums do not"),
    ],
)
def test_weights_by_which_sums_are_not_enough_are_named(name: str, weights: str, told: str) -> None:
    job = bound_method(name, 4, 3, {}, **TEST_SET, aggregation={"secure": True, "weights": weights})
    (fault,) = [fault for fault in check_job(job) if fault[0] == "spec.aggregation.weights"]
    assert fault[1] == weights and told in fault[2]
    assert fault[3] == ("write samples" if weights == "uniform" else "write uniform")
    assert not bound_method(name, 4, 3, {}, **TEST_SET, aggregation={"weights": weights}).check()


def test_silos_that_are_not_named_are_refused() -> None:
    job = bound_method("fedavg", 4, 3, {}, **TEST_SET, aggregation={"secure": True}).spec.model_dump(
        by_alias=True
    )
    job["silos"] = {"selector": {"matchLabels": {"a": "b"}}}
    found = check_job(registry.bind(FederatedJobSpec.model_validate(job)))
    assert [path for path, *_ in found] == ["spec.silos.selector"]


def test_methods_that_the_aggregator_reads_more_of_are_refused() -> None:
    refused = {name for name in names() if "spec.aggregation.secure" in faults(name)}
    assert refused >= {
        "fedconcat",
        "fedconcat-id",
        "groupdro",
        "feddf",
        "fedbe",
    }
    assert not refused & {"fedavg", "fedprox", "fedrs", "fedlc", "moon", "map", "fedopt", "fedavgm", "fedbr"}
    assert not refused & {
        "scaffold",
        "scamap",
        "fednova",
        "feddyn",
        "fedcm",
        "creff",
        "ccvr",
        "tau-norm",
        "fedproto",
    }
