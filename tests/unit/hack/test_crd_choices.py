"""An API server refuses what is written together or belongs to another choice where the models do, in their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from fedsilo.api.aggregation import FIELDS, RuleSpec
from fedsilo.api.communication import DownloadSpec, UploadSpec
from fedsilo.api.datasets import VolumeSpec
from fedsilo.api.differential_privacy import DifferentialPrivacySpec
from fedsilo.api.job import SilosSpec
from fedsilo.api.parameters import InitialWeightsSpec
from fedsilo.api.training import OptimizerSpec
from hack.crds import RESOURCES
from tests.unit.hack.cel import filled_value, holds
from tests.unit.hack.test_crds import find, root

JOB, SILO, AGENT = (root(resource) for resource in RESOURCES)

Values = Mapping[str, Sequence[Any]]

ALTERNATIVES: dict[type[BaseModel], tuple[str, Values, Mapping[str, Any]]] = {
    SilosSpec: (
        ".spec.silos",
        {"refs": (None, [{"name": "north"}]), "selector": (None, {"matchLabels": {"a": "b"}})},
        {},
    ),
    VolumeSpec: (
        ".spec.aggregator.datasets[].volume",
        {"persistentVolumeClaim": (None, "scans"), "hostPath": (None, "/data")},
        {},
    ),
    InitialWeightsSpec: (
        ".spec.model.initialWeights",
        {"file": (None, "base.safetensors"), "run": (None, "earlier")},
        {"sha256": "a" * 64},
    ),
    DifferentialPrivacySpec: (
        ".spec.privacy.differentialPrivacy",
        {"epsilon": (None, 1.0), "noiseMultiplier": (None, 1.0)},
        {"unit": "example", "delta": 1e-5},
    ),
}
"""Model -> where it is in a job, the fields of which exactly one is written, and what else it needs."""

CHOICES: dict[type[BaseModel], tuple[str, Values]] = {
    OptimizerSpec: (
        ".spec.training.optimizer",
        {
            "name": (None, "sgd", "adam", "adamw"),
            "momentum": (None, 0.0, 0.5, 0.9),
            "nesterov": (None, False, True),
            "betas": (None, [0.9, 0.99]),
            "eps": (None, 1e-8),
        },
    ),
    UploadSpec: (
        ".spec.communication.upload",
        {
            "encoding": (None, "float32", "bfloat16", "float16", "int8", "topk"),
            "block": (None, 16, 24, 256),
            "fraction": (None, 0.1),
            "delta": (None, False, True),
            "errorFeedback": (None, False, True),
        },
    ),
    DownloadSpec: (
        ".spec.communication.download",
        {"encoding": (None, "float32", "bfloat16", "float16", "int8"), "block": (None, 16, 24, 4096)},
    ),
    RuleSpec: (
        ".spec.aggregation.rule",
        {"name": tuple(FIELDS), "byzantine": (None, 1), "norm": (None, 1.0), "selected": (None, 2)},
    ),
}
"""Model -> where it is in a job, and values of the choice and of what belongs to some of its values."""


def compare(model: type[BaseModel], path: str, written: Mapping[str, Any]) -> None:
    """Fail where an API server takes what the model refuses, the other way round, or says something else of it."""
    schema = find(JOB, path)
    filled = filled_value(written, schema)
    rules = [rule for rule in schema["x-kubernetes-validations"] if ".startsWith(" not in rule["rule"]]
    broken = [rule["message"] for rule in rules if not holds(rule["rule"], filled)]
    try:
        model.model_validate({name: value for name, value in written.items() if value is not None})
    except ValidationError as refused:
        (first, *_) = refused.errors()
        # An API server would estimate a rule that quotes the name as too expensive.
        said = first["msg"].replace(written["name"], "the rule") if model is RuleSpec else first["msg"]
        assert said in broken, written
    else:
        assert broken == [], written


def combinations(values: Values) -> list[dict[str, Any]]:
    """Every way to write these fields."""
    return [dict(zip(values, given, strict=True)) for given in product(*values.values())]


@pytest.mark.parametrize("model", ALTERNATIVES)
def test_of_alternatives_just_one_is_written(model: type[BaseModel]) -> None:
    path, values, needed = ALTERNATIVES[model]
    for written in combinations(values):
        compare(model, path, {**written, **needed})


@pytest.mark.parametrize("model", CHOICES)
def test_a_field_of_another_choice_is_refused(model: type[BaseModel]) -> None:
    path, values = CHOICES[model]
    for written in combinations(values):
        compare(model, path, written)


@pytest.mark.parametrize("model", CHOICES)
def test_the_default_of_a_section_keeps_its_rules_before_it_is_filled_in(model: type[BaseModel]) -> None:
    """An API server asks them of a default as it stands, in which the choice has no value yet."""
    schema = find(JOB, CHOICES[model][0])
    if "default" in schema:
        assert [
            rule for rule in schema["x-kubernetes-validations"] if not holds(rule["rule"], schema["default"])
        ] == []
