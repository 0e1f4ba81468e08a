"""Which features of a job go together, and with which methods: what is said of small jobs that have two of them.

A feature is what a job writes to have it, and what it must write beside that. Nothing here knows a conflict: a job is
made of each pair, and whoever refuses jobs is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods import registry
from fedsilo.methods.method import Method
from fedsilo.transforms.conflicts import check_job

Sections = Mapping[str, Any]
"""Parts of a job's specification, as a manifest has them."""

SILOS = 8

JOB: Sections = {
    "model": {"name": "lenet", "config": {}},
    "data": {"dataset": "data", "classes": 10, "inputShape": [3, 32, 32]},
    "training": {"rounds": 2},
    "silos": {"refs": [{"namespace": "silos", "name": f"s{number}"} for number in range(SILOS)]},
    "aggregator": {"datasets": [{"name": name, "loader": "sklearn:digits"} for name in ("test", "public")]},
}

TEST_SET_SECTION: Sections = {"evaluation": {"testDataset": "test"}}
UNIFORM_WEIGHTS: Sections = {"aggregation": {"weights": "uniform"}}
STAGES: Sections = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1}
CONFIGURATION: Mapping[str, Sections] = {"fedconcat": STAGES, "fedconcat-id": STAGES}
"""Methods whose configuration by default is for longer jobs -> another."""


@dataclass(frozen=True, eq=False)
class Feature:
    """Something that a job can ask for; one is another than each other one, and a key.

    :param place: where it asks for it, as people write it.
    :param written: what it writes there.
    :param beside: what it has to write elsewhere, where nothing else is asked for.
    """

    name: str
    place: str
    written: Sections
    beside: Sections = field(default_factory=dict)


def _privacy_feature(unit: str, norm: Sections, beside: Sections) -> Feature:
    given = {"unit": unit, "noiseMultiplier": 1.0, "delta": 1e-3, **norm}
    where = f"privacy.differentialPrivacy.unit: {unit}"
    return Feature(f"noise for each {unit}", where, {"privacy": {"differentialPrivacy": given}}, beside)


FEATURES: tuple[Feature, ...] = (
    Feature("sums only", "aggregation.secure", {"aggregation": {"secure": True}}),
    _privacy_feature("example", {}, TEST_SET_SECTION),
    _privacy_feature("person", {}, TEST_SET_SECTION),
    _privacy_feature("silo", {"maxUpdateNorm": 1.0}, {**TEST_SET_SECTION, **UNIFORM_WEIGHTS}),
    Feature(
        "clipped changes",
        "aggregation.rule: norm-clipping",
        {"aggregation": {"rule": {"name": "norm-clipping", "norm": 1.0}}},
        UNIFORM_WEIGHTS,
    ),
    Feature(
        "another robust rule",
        "aggregation.rule: median",
        {"aggregation": {"rule": {"name": "median"}}},
    ),
    Feature("weights by samples", "aggregation.weights", {"aggregation": {"weights": "samples"}}),
    Feature("fewer bytes up", "communication.upload", {"communication": {"upload": {"encoding": "int8"}}}),
    Feature(
        "fewer bytes down", "communication.download", {"communication": {"download": {"encoding": "int8"}}}
    ),
    Feature(
        "frozen tensors",
        "model.parameters.frozen",
        {"model": {"parameters": {"frozen": ["encoder.*"]}}},
    ),
    Feature(
        "local tensors", "model.parameters.local", {"model": {"parameters": {"local": ["classifier.*"]}}}
    ),
    Feature("BatchNorm", "model.name: resnet8", {"model": {"name": "resnet8"}}),
    Feature(
        "kept optimiser state",
        "training.optimizer.state: keep",
        {"training": {"optimizer": {"state": "keep"}}},
    ),
    Feature(
        "a training of one's own",
        "training.trainer",
        {"training": {"trainer": "python:hospital.training:train"}},
    ),
    Feature("bfloat16", "training.precision: bfloat16", {"training": {"precision": "bfloat16"}}),
    Feature("preprocessing", "data.preprocessing", {"data": {"preprocessing": {"standardise": True}}}),
    Feature("a check of the data", "data.check", {"data": {"check": "report"}}),
    Feature("a test set", "evaluation.testDataset", TEST_SET_SECTION),
    Feature("the best model", "evaluation.best", {"evaluation": {"best": {"metric": "accuracy"}}}),
    Feature(
        "an early end",
        "evaluation.patience",
        {"evaluation": {"patience": 2}},
        {"evaluation": {"best": {"metric": "accuracy"}}},
    ),
    Feature("silos drawn", "participation.fraction", {"participation": {"fraction": 0.75}}),
    Feature("a quorum", "participation.minSilos", {"participation": {"minSilos": 5}}),
    Feature(
        "silos by label",
        "silos.selector",
        {"silos": {"refs": [], "selector": {"matchLabels": {"site": "hospital"}}}},
    ),
)


def merge_sections(*sections: Sections) -> dict[str, Any]:
    """Sections over one another; of two values for one field the later holds."""

    def merge_pair(under: dict[str, Any], upper: Sections) -> dict[str, Any]:
        both = {
            name: merge_pair(under[name], value)
            for name, value in upper.items()
            if isinstance(value, dict) and isinstance(under.get(name), dict)
        }
        return {**under, **upper, **both}

    return reduce(merge_pair, sections, {})


def are_one_field(first: Feature, second: Feature) -> bool:
    """Whether a job can have only one of both, because they are values of the same field."""
    one, other = dict(_values(first.written)), dict(_values(second.written))
    return any(one[field] != other[field] for field in one.keys() & other.keys())


def _values(sections: Sections, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in sections.items():
        if isinstance(value, dict):
            yield from _values(value, f"{path}.{name}")
        else:
            yield f"{path}.{name}", value


def sections_of(*features: Feature, method: str = "fedavg") -> dict[str, Any]:
    """The specification of a small job of the method with these features."""
    sections, _ = _bound_job(*features, method=method)
    return sections


def method_of(*features: Feature, method: str = "fedavg") -> Method:
    """The method of such a job."""
    _, bound = _bound_job(*features, method=method)
    return bound


@cache
def refusals(*features: Feature, method: str = "fedavg") -> tuple[Finding, ...]:
    """What is wrong with such a job."""
    bound = method_of(*features, method=method)
    return (*check_job(bound), *bound.check())


def _bound_job(*features: Feature, method: str) -> tuple[dict[str, Any], Method]:
    named = {"method": {"name": method, "config": dict(CONFIGURATION.get(method, {}))}}
    beside, written = ((each.beside for each in features), (each.written for each in features))
    sections = merge_sections(JOB, named, *beside, *written)
    bound = registry.bind(FederatedJobSpec.model_validate(sections))
    if bound.public_data is None:
        return sections, bound
    sections = merge_sections(sections, {"aggregation": {"publicDataset": "public"}})
    return sections, registry.bind(FederatedJobSpec.model_validate(sections))
