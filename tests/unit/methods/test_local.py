"""Silos of the method local train as long as in FedAvg, from the same weights, and send nothing but figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.local.display import show_result
from fedsilo.methods.interface import PERSONAL_TREE, SiloTask
from fedsilo.methods.state import State
from tests.federate import federate, job_spec, runners, skewed_silos
from tests.unit.methods.harness import ObservedSilo

CLASSES = {"a": [0, 1], "b": [2, 3]}


def federated_job(
    directory: Path, rounds: int, **sections: Any
) -> tuple[RoundEngine, dict[str, ObservedSilo]]:
    spec = job_spec("local", list(CLASSES), rounds, **sections)
    silos = skewed_silos(directory, CLASSES)
    observed = {name: ObservedSilo(runner) for name, runner in runners(spec, silos, directory).items()}
    engine = federate(directory / "job", spec, observed)
    assert engine.result is not None, engine.failure
    return engine, observed


def test_a_silo_goes_on_where_its_last_round_ended_and_sends_no_tensor(tmp_path: Path) -> None:
    _, observed = federated_job(tmp_path, 3)
    spec = job_spec("fedavg", list(CLASSES), 3)
    for silo, runner in runners(spec, skewed_silos(tmp_path, CLASSES), tmp_path).items():
        tree = runner.context.initial_model()
        for number in (1, 2, 3):
            task, reply = observed[silo].seen["train", number]
            assert not reply.tensors and not task.trees and reply.private is not None
            alone = runner.run(SiloTask("train", "train", number, number, 3, {"model": tree}, {}), State())
            tree = alone.tensors
            assert reply.metrics == alone.metrics
            for name, array in reply.private.tree(PERSONAL_TREE).items():
                np.testing.assert_array_equal(array, tree[name])


def test_every_round_tells_how_good_the_silos_models_are_on_their_own_examples(tmp_path: Path) -> None:
    engine, observed = federated_job(tmp_path, 2, evaluation={"every": 1}, data={"validationFraction": 0.25})
    accuracies = [silo.seen["evaluate", 2][1].metrics["personal_accuracy"] for silo in observed.values()]
    assert [record["metrics"].keys() for record in engine.history()] == [
        {"personal_accuracy", "personal_accuracy_spread", "personal_models"}
    ] * 2
    metrics = engine.history()[-1]["metrics"]
    assert metrics["personal_accuracy"] == pytest.approx(np.mean(accuracies))
    assert metrics["personal_accuracy_spread"] == pytest.approx(np.std(accuracies))
    assert metrics["personal_models"] == 2
    assert engine.result is not None and engine.result.metrics == metrics


def test_preprocessing_is_of_the_silos_own_models_too(tmp_path: Path) -> None:
    engine, observed = federated_job(tmp_path, 1, data={"preprocessing": {"standardise": True}})
    _, reply = observed["silos/a"].seen["train", 1]
    assert reply.private is not None and "preprocessing" in reply.private.trees
    described = json.loads((engine.result.path.with_suffix(".json")).read_text()) if engine.result else {}
    assert described["model"]["name"] == "local"


SILO_SCORES = [{"name": name, "accuracy": 0.5, "samples": 24} for name in CLASSES]


@pytest.mark.parametrize(
    "baseline", [{}, {"alone": SILO_SCORES, "pooled": {"accuracy": 0.75, "samples": 48}}]
)
def test_a_run_ends_with_the_mean_of_the_silos_models_and_says_where_they_are(
    baseline: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = {
        "phase": "Succeeded",
        "job": "jobs/alone",
        "method": "local",
        "rounds": 2,
        "samples": 48,
        "seconds": 3.0,
        "silos": [{"name": name, "samples": 24} for name in CLASSES],
        "metrics": {"personal_accuracy": 0.75, "personal_accuracy_spread": 0.25, "personal_models": 2.0},
        "model": {"path": "/runs/alone/model.safetensors", "sha256": "00"},
    }
    show_result(outcome, baseline, job_spec("local", 2).data)
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if "silos' own models" in line)
    assert "48" in line and "75.0%" in line
    assert "own     /runs/alone/silos/NAME/state/personal.safetensors of each silo" in shown
