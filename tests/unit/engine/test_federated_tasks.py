"""Scores of silos together, of every learning task, are those of their pooled predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.learning.metrics.catalogue import METRICS, metrics_for
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.methods.interface import EVALUATE
from fedsilo.tasks.places import UNSCORED_TARGET
from fedsilo.tasks.registry import metrics_of
from fedsilo.tasks.regression import RegressionTask
from fedsilo.transforms.evaluation.record import evaluation_record
from fedsilo.transforms.evaluation.scores import class_support
from fedsilo.transforms.plan import JobPlan
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding
from tests.unit.methods.harness import accepted_updates as answered

THIS_MODULE = "python:tests.unit.engine.test_federated_tasks"
TASKS: dict[str, dict[str, Any]] = {
    "class": {},
    "labels": {"task": {"name": "multilabel"}},
    "numbers": {"task": {"name": "regression", "config": {"outputs": 2}}, "data": {"classes": None}},
    "pixels": {
        "task": {"name": "segmentation", "config": {"ignore": 9}},
        "data": {"inputShape": [1, 3, 2], "classes": 3},
        "model": {"name": f"{THIS_MODULE}:Pixels", "config": {}},
    },
    "tokens": {
        "task": {"name": "language", "config": {"vocabulary": 7}},
        "data": {"inputShape": [5], "classes": None},
        "model": {"name": "transformer", "config": {"width": 8, "heads": 2, "layers": 1}},
    },
}


class Pixels(nn.Module):
    """Logits of each pixel from that pixel alone."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.each = nn.Conv2d(input_shape[0], classes, 1)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.each(x)
        return found


class NearRegressionTask(RegressionTask):
    """A learning task of a job's own, with a metric of its own that no guard knows."""

    name = "own"
    metrics = ("near",)

    @override
    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        found = super().scores(outputs, targets)
        return {"near": found["mae"] < 1, "loss": found["loss"]}


class LargestError:
    """A metric of a job's own: the largest error."""

    def __init__(self) -> None:
        self.largest = 0.0

    def update(self, predictions: torch.Tensor, targets: torch.Tensor) -> None:
        self.largest = max(self.largest, float((predictions - targets).abs().max()))

    def compute(self) -> float:
        return self.largest


@pytest.mark.parametrize("metrics", [None, [f"{THIS_MODULE}:LargestError"]])
def test_an_own_task_reports_its_loss_and_the_jobs_own_metrics(
    tmp_path: Path, metrics: list[str] | None
) -> None:
    rng = np.random.default_rng(8)
    silos = [silo_holding(tmp_path, f"s{k}", *examples("numbers", rng, 12)) for k in range(2)]
    spec = job_spec(
        "fedavg",
        2,
        task={"name": f"{THIS_MODULE}:NearRegressionTask", "config": {"outputs": 2}},
        data={"validationFraction": 0.5, "classes": None},
        evaluation={} if metrics is None else {"metrics": metrics},
    )
    (line,) = federate(tmp_path, spec, runners(spec, silos, tmp_path)).history()
    assert line["metrics"].keys() == {
        "loss",
        *([] if metrics is None else ["LargestError_mean", "LargestError_spread"]),
    }


def examples(answers: str, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Random features and targets; some labels and classes are rare, and some places say nothing."""
    if answers == "class":
        return rng.normal(0, 1, (n, 6)).astype(np.float32), rng.choice(4, n, p=[0.6, 0.25, 0.1, 0.05])
    if answers == "labels":
        targets = rng.random((n, 4)) < (0.5, 0.4, 0.1, 0.9)
        return rng.normal(0, 1, (n, 6)).astype(np.float32), targets.astype(np.int64)
    if answers == "numbers":
        features = rng.normal(0, 1, (n, 6)).astype(np.float32)
        return features, (features[:, :2] * 3 + 40).astype(np.float32)
    if answers == "pixels":
        masks = rng.choice([0, 1, 2, 9], (n, 3, 2), p=[0.7, 0.15, 0.05, 0.1])
        return rng.normal(0, 1, (n, 1, 3, 2)).astype(np.float32), masks
    tokens = rng.integers(0, 7, (n, 6))
    return tokens[:, :-1], np.where(rng.random((n, 5)) < 0.2, UNSCORED_TARGET, tokens[:, 1:])


@pytest.mark.parametrize("answers", TASKS)
def test_sums_over_silos_have_the_same_metrics_where_silos_leave_classes_out(
    tmp_path: Path, answers: Any
) -> None:
    names = [name for name in metrics_for(answers) if name != "r2"]
    sections = {"data": {}, **TASKS[answers]}
    sections["data"] = {"validationFraction": 0.5, **sections["data"]}
    sections |= {"evaluation": {"metrics": names}, "privacy": {"minSamplesPerClass": 4}}
    lines = []
    for secure in (None, True):
        rng, folder = np.random.default_rng(8), tmp_path / str(secure)
        folder.mkdir()
        silos = [silo_holding(folder, f"s{k}", *examples(answers, rng, n)) for k, n in enumerate((24, 5, 16))]
        spec = job_spec("fedavg", 3, aggregation={"secure": secure}, **sections)
        lines += federate(folder, spec, runners(spec, silos, folder)).history()
    plain, summed = lines
    assert summed["metrics"] == pytest.approx(plain["metrics"], rel=1e-4)
    assert summed.get("perClass") == plain.get("perClass")


@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize("answers", TASKS)
def test_exact_metrics_are_those_of_the_pooled_predictions(tmp_path: Path, answers: Any, least: int) -> None:
    rng = np.random.default_rng(8)
    silos = [silo_holding(tmp_path, f"s{k}", *examples(answers, rng, n)) for k, n in enumerate((24, 5, 16))]
    names = [name for name in metrics_for(answers) if METRICS[name].source in ("counts", "sums")]
    fields = {name: section for name, section in TASKS[answers].items() if name != "data"}
    spec = job_spec(
        "fedavg",
        3,
        data={"validationFraction": 0.5} | TASKS[answers].get("data", {}),
        evaluation={"metrics": names},
        privacy={"minSamplesPerClass": least},
        **fields,
    )
    answering = runners(spec, silos, tmp_path)
    engine = federate(tmp_path, spec, answering)
    (line,) = engine.history()

    task, pooled, samples, totals = None, [], 0, dict.fromkeys(("loss",), 0.0)
    for runner in answering.values():
        context = runner.context
        task, targets = context.learning_task, context.validation.labels.clone()
        kept = torch.ones(len(targets), dtype=torch.bool)
        if task.answers in ("class", "labels", "pixels"):
            small = torch.from_numpy(np.flatnonzero(class_support(targets, task) < least))
            if task.answers == "labels":
                targets[:, small] = UNSCORED_TARGET
            else:
                targets[torch.isin(targets, small)] = UNSCORED_TARGET
            kept = (targets != UNSCORED_TARGET).reshape(len(targets), -1).any(dim=1)
            assert len(small) > 0 or least == 1, "some class is too small"
        if task.answers == "numbers" and len(targets) < least:
            continue
        scores = Scores(ChosenMetrics.of(names, task.answers), task)
        with torch.inference_mode():
            outputs = context.module(model_of(engine)).eval()(
                context.validation.batch(torch.arange(len(targets)))[0]
            )
        scores.update(outputs[kept], targets[kept])
        totals["loss"] += float(task.scores(outputs[kept], targets[kept])["loss"].sum())
        samples += int(kept.sum())
        pooled.append(scores)
    figures = Scores.pooled_scores(pooled).figures()
    for name in line["metrics"].keys() & {"rmse", "calibration_error"} if least > 1 else ():
        # By the losses of all examples, also of a silo with few; and without the bins that have few.
        assert line["metrics"].pop(name) != pytest.approx(figures.metrics[name], rel=1e-6)
    if least == 1 or answers != "numbers":
        assert line["metrics"]["loss"] == pytest.approx(totals["loss"] / samples, rel=1e-6)
    found = {name: line["metrics"][name] for name in names if name in line["metrics"]}
    expected = {name: value for name, value in figures.metrics.items() if name in found or least == 1}
    assert found == pytest.approx(expected, rel=1e-6)
    assert {"f1", "r2", "iou", "perplexity"} & found.keys()
    assert line.get("perClass", {}) == {name: list(values) for name, values in figures.per_class.items()}
    assert line.get("confusion") == (
        None if figures.confusion is None else [list(row) for row in figures.confusion]
    )
    assert not {"tokens", "log_likelihood"} & line["metrics"].keys()


@pytest.mark.parametrize(
    ("answers", "kinds", "scalars"),
    [
        ("class", ["confusion", "confusion"], {"accuracy", "loss"}),
        ("labels", ["confusion"], {"accuracy", "loss"}),
        ("numbers", ["feature_statistics"] * 4, {"mae", "loss"}),
        ("pixels", ["confusion"], {"accuracy", "loss"}),
        ("tokens", [], {"accuracy", "loss", "tokens", "log_likelihood"}),
    ],
)
def test_what_leaves_is_declared(answers: Any, kinds: list[str], scalars: set[str]) -> None:
    names = [name for name in metrics_for(answers) if METRICS[name].source in ("counts", "sums")]
    step = JobPlan(bound_method("fedavg", evaluation={"metrics": names}, **TASKS[answers])).step(EVALUATE)
    assert [payload.kind for payload in step.payloads] == kinds
    assert set(step.names) == {*scalars, "named_scores"}
    held_method = bound_method("fedavg", evaluation={"metrics": names, "testDataset": "t"}, **TASKS[answers])
    held = JobPlan(held_method).step(EVALUATE)
    assert (held.payloads, set(held.names)) == ((), set(metrics_of(held_method.spec.task)))


BINS = np.zeros((16, 3))
VALUES = {
    "count": np.ones(2, np.int64),
    "missing": np.zeros(2, np.int64),
    "mean": np.zeros(2),
    "m2": np.zeros(2),
}


@pytest.mark.parametrize(
    ("metric", "answers", "blocks", "said"),
    [
        ("recall", "class", {"confusion/1": [1, 2]}, r"confusion/\*: counts 3 examples, and the silo says 4"),
        (
            "f1",
            "labels",
            {"confusion/0": [1, 2, 0, 0]},
            "confusion/0: counts 3 examples, and the silo says 4",
        ),
        ("calibration_error", "class", {"calibration": BINS + 1}, "calibration: the bins are not those of 4"),
        ("calibration_error", "class", {"calibration": BINS - 1}, "calibration: the bins are not those of 4"),
        (
            "r2",
            "numbers",
            {f"targets/{name}": -1 - found for name, found in VALUES.items()},
            "targets/count: -2 is",
        ),
    ],
)
def test_sums_that_are_none_fail_the_job_and_name_the_silo(
    metric: str, answers: Any, blocks: dict[str, Any], said: str
) -> None:
    tree = {name: np.array(values) for name, values in blocks.items()}
    kinds = {"confusion": tree, "feature_statistics": tree}
    sent = answered({"silos/s0": kinds}, {"silos/s0": 4})
    with pytest.raises(MethodError, match=f"silo silos/s0: {said}"):
        evaluation_record(sent, ChosenMetrics.of([metric], answers), 2)
