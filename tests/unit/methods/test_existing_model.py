"""Calibration of a model that exists: a job without a round of training, from the job's initial weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.methods import registry
from fedsilo.methods.checks import check_training
from fedsilo.methods.state import Tree
from tests.federate import (
    bound_method,
    drive,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    runners,
    skewed_silos,
)

CLASSES_OF = {"a": [0, 1], "b": [1, 2]}
NO_ROUNDS: dict[str, Any] = {"rounds": 0}
TAU_AFTER_CCVR = {"after": {"name": "ccvr"}, "tau": 0.5}


def train_job(tmp_path: Path, **sections: Any) -> tuple[FederatedJobSpec, RoundEngine]:
    """A job of two rounds."""
    spec = job_spec("fedavg", list(CLASSES_OF), 2, **sections)
    return spec, run(tmp_path, "first", spec)


def run(tmp_path: Path, name: str, spec: FederatedJobSpec) -> RoundEngine:
    """The job to its end, with paths from `tmp_path`."""
    engine = open_engine(tmp_path / name / "aggregator", spec, root=tmp_path)
    drive(engine, local_silos(tmp_path / name, runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path)))
    return engine


def calibration(tmp_path: Path, model: Tree, method: str, **config: Any) -> FederatedJobSpec:
    """The job of a calibration of this model."""
    path = tmp_path / "given.safetensors"
    save_file({name: np.ascontiguousarray(array) for name, array in model.items()}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    given = {"initialWeights": {"sha256": digest, "file": path.name}}
    return job_spec(method, list(CLASSES_OF), method={"config": config}, model=given, training=NO_ROUNDS)


@pytest.mark.parametrize(
    ("method", "config"), [("ccvr", {}), ("tau-norm", {"tau": 0.5}), ("tau-norm", TAU_AFTER_CCVR)]
)
def test_a_calibration_by_itself_gives_what_it_gives_at_the_end_of_the_training(
    tmp_path: Path, method: str, config: dict[str, Any]
) -> None:
    _, first = train_job(tmp_path)
    spec = calibration(tmp_path, model_of(first), method, **config)
    assert registry.bind(spec).check() == check_training(registry.bind(spec)) == []
    engine = run(tmp_path, "calibration", spec)
    assert [(line["round"], line["phase"]) for line in engine.history()] == [(1, "calibration")]
    whole = run(tmp_path, "whole", job_spec(method, list(CLASSES_OF), 2, method={"config": config}))
    found, expected = model_of(engine), model_of(whole)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert not np.array_equal(found["classifier.weight"], model_of(first)["classifier.weight"])


def test_tau_norm_alone_asks_for_the_number_of_examples_and_nothing_else(tmp_path: Path) -> None:
    _, first = train_job(tmp_path)
    spec = calibration(tmp_path, model_of(first), "tau-norm")
    method = registry.bind(spec)
    assert [(phase.rounds, phase.everyone) for phase in method.phases()] == [(1, True)]
    assert {name: (step.payloads, step.metrics) for name, step in method.steps().items()} == {
        "count": ((), ())
    }
    engine = run(tmp_path, "calibration", spec)
    (line,) = engine.history()
    assert line["samples"] == {"silos/a": 24, "silos/b": 24}


def test_training_and_calibration_need_a_model_and_one_that_trains_a_round() -> None:
    given = {"initialWeights": {"sha256": "0" * 64, "file": "given.safetensors"}}
    for method in ("ccvr", "tau-norm"):
        (fault,) = bound_method(method, training=NO_ROUNDS).check()
        assert fault[:2] == ("spec.training.rounds", 0)
        assert fault[3] == "name a model in spec.model.initialWeights, or use 1 or more"
        config = {"after": {"name": "fedprox"}}
        (fault,) = bound_method(method, config=config, training=NO_ROUNDS, model=given).check()
        assert fault[:2] == ("spec.method.config.after.name", "fedprox")
        existing = bound_method(method, training=NO_ROUNDS, model=given)
        assert existing.check() == check_training(existing) == []


@pytest.mark.parametrize("name", sorted(set(registry.names()) - {"ccvr", "tau-norm"}))
def test_no_other_method_does_without_training(name: str) -> None:
    fault, *_ = check_training(bound_method(name, training=NO_ROUNDS))
    assert fault == (
        "spec.training.rounds",
        0,
        f"is too small: {name} has nothing to do without training",
        "use 1 or more",
    )
