"""The metric that stands for a job, which is also the default of what its best model is chosen by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from fedsilo.api.digest import frozen_spec
from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.engine.status import StatusSource
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.main_metric import main_metric, whole_evaluation
from fedsilo.methods.state import State
from fedsilo.transforms.conflicts import check_job
from tests.federate import bound_method, federate, job_spec
from tests.unit.engine.synthetic import SyntheticRunner

TEST_SET = {"testDataset": "test"}
TEST_DATA = {"datasets": [{"name": "test", "loader": "npz", "config": {"path": "test.npz"}}]}
OWN = "python:tests.unit.learning.metrics.own:Kappa"


@pytest.mark.parametrize(
    ("method", "evaluation", "metric", "mode"),
    [
        ("fedavg", {}, "accuracy", "max"),
        ("fedavg", {"metrics": ["confusion_matrix", "f1", "recall"]}, "f1", "max"),
        ("fedavg", {"metrics": ["confusion_matrix"]}, "accuracy", "max"),
        ("fedavg", {"metrics": ["calibration_error"]}, "calibration_error", "min"),
        ("fedavg", {"metrics": ["loss", "f1"]}, "loss", "min"),
        ("fedavg", {"metrics": ["auroc", "f1"]}, "auroc_mean", "max"),
        ("fedavg", {"metrics": ["auroc", "f1"], **TEST_SET}, "auroc", "max"),
        ("fedavg", {"metrics": [OWN]}, "Kappa_mean", "max"),
        ("local", {}, "personal_accuracy", "max"),
    ],
)
def test_the_main_metric_is_the_first_that_the_job_asks_for(
    method: str, evaluation: Mapping[str, Any], metric: str, mode: str
) -> None:
    found = bound_method(method, evaluation={**evaluation, "best": {}}, aggregator=TEST_DATA)
    assert main_metric(found) == metric
    best = whole_evaluation(found).best
    assert best is not None and (best.metric, best.mode) == (metric, mode)
    assert not [fault for fault in check_job(found) if fault[0].startswith("spec.evaluation.best")]


@pytest.mark.parametrize(
    ("best", "metric", "mode"),
    [
        ({"metric": "recall"}, "recall", "max"),
        ({"metric": "loss"}, "loss", "min"),
        ({"metric": "loss", "mode": "max"}, "loss", "max"),
        ({"mode": "min"}, "f1", "min"),
    ],
)
def test_what_the_job_says_of_its_best_model_counts(best: Mapping[str, Any], metric: str, mode: str) -> None:
    method = bound_method("fedavg", evaluation={"metrics": ["f1", "recall"], "best": best})
    found = whole_evaluation(method).best
    assert main_metric(method) == metric
    assert found is not None and (found.metric, found.mode) == (metric, mode)


def test_a_job_that_names_its_best_metric_is_the_job_that_it_was() -> None:
    spec = job_spec("fedavg", 2, evaluation={"best": {"metric": "accuracy"}})
    assert frozen_spec(spec)["evaluation"]["best"] == {"metric": "accuracy", "mode": "max"}
    assert EvaluationSpec().best is None


class CalibratedRunner(SyntheticRunner):
    """Finds each round's model more accurate, and worse by the sums that the job's own metric follows from."""

    @override
    def run(self, task: SiloTask, private: State) -> Reply:
        if task.step == "evaluate":
            return Reply(samples=1, metrics={"accuracy": task.round / 10, "loss": float(task.round)})
        return super().run(task, private)


@pytest.mark.parametrize(
    ("evaluation", "score", "best"),
    [
        ({"metrics": ["loss"]}, "loss=3", None),
        ({"metrics": ["loss"], "best": {}}, "loss=1", {"round": 1, "metric": "loss", "value": 1.0}),
        ({}, "accuracy=0.3", None),
    ],
)
def test_a_status_names_the_main_metric_and_the_best_model_is_by_it(
    evaluation: Mapping[str, Any], score: str, best: Mapping[str, Any] | None, tmp_path: Path
) -> None:
    spec = job_spec("fedavg", 2, rounds=3, evaluation={"every": 1, **evaluation})
    engine = federate(
        tmp_path, spec, {f"silos/s{number}": CalibratedRunner(f"silos/s{number}") for number in (0, 1)}
    )
    status = StatusSource(engine, {}, {}).status("").document()
    assert (status["score"], status.get("best")) == (score, best)
