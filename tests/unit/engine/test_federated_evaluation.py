"""Scores of silos together are those of their pooled predictions, of every class that may be counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn

from fedsilo.errors import MethodError
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.methods.interface import EVALUATE
from fedsilo.methods.state import Tree
from fedsilo.silo.context import LocalContext
from fedsilo.transforms.evaluation.record import evaluation_record
from fedsilo.transforms.plan import JobPlan
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding
from tests.unit.methods.harness import accepted_updates as answered

CLASSES, SILOS = 4, 3
METRICS = ["balanced_accuracy", "recall", "precision", "f1", "confusion_matrix", "auroc"]


def divided_silos(folder: Path, seed: int) -> list[Any]:
    """Silos that hold examples of some classes each, of very different numbers."""
    rng = np.random.default_rng(seed)
    silos = []
    for number in range(SILOS):
        labels = np.repeat(np.arange(CLASSES), rng.integers((8, 0, 0, 4), (38, 30, 30, 34)))
        features = (rng.normal(0, 1, (len(labels), 6)) + np.eye(6)[labels]).astype(np.float32)
        silos.append(silo_holding(folder, f"s{number}", features, labels.astype(np.int64)))
    return silos


def answers(context: LocalContext, tree: Tree, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and answers on a silo's validation examples of classes with so many of them."""
    labels = context.validation.labels.numpy()
    found = context.model(tree)(context.validation.features).argmax(dim=1).numpy()
    counted = np.bincount(labels, minlength=CLASSES)[labels] >= least
    return labels[counted], found[counted]


@pytest.mark.parametrize(("seed", "least"), [(1, 1), (2, 1), (3, 4), (4, 7)])
def test_metrics_from_counts_are_those_of_the_pooled_answers(tmp_path: Path, seed: int, least: int) -> None:
    spec = job_spec(
        "fedavg",
        SILOS,
        data={"validationFraction": 0.5},
        evaluation={"metrics": METRICS},
        privacy={"minSamplesPerClass": least},
    )
    answering = runners(spec, divided_silos(tmp_path, seed), tmp_path)
    engine = federate(tmp_path, spec, answering)
    (line,) = engine.history()

    contexts = [runner.context for runner in answering.values()]
    parts = [answers(context, model_of(engine), least) for context in contexts]
    labels, found = (np.concatenate(part) for part in zip(*parts, strict=True))
    if least > 1:
        assert len(labels) < sum(len(context.validation) for context in contexts), "some class is too small"
    expected = {
        "accuracy": sklearn.accuracy_score(labels, found),
        "balanced_accuracy": sklearn.balanced_accuracy_score(labels, found),
    }
    for name in ("recall", "precision", "f1"):
        function = getattr(sklearn, f"{name}_score")
        expected[name] = function(labels, found, average="macro", zero_division=0)
        by_class = function(labels, found, labels=range(CLASSES), average=None, zero_division=0)
        known = [value for value in line["perClass"][name] if value is not None]
        occurring = np.isin(range(CLASSES), labels if name == "recall" else np.union1d(labels, found))
        assert known == pytest.approx(by_class[occurring])
    assert line["confusion"] == sklearn.confusion_matrix(labels, found, labels=range(CLASSES)).tolist()
    assert {name: line["metrics"][name] for name in expected} == pytest.approx(expected)
    assert set(line["metrics"]) == {*expected, "loss", "auroc_mean", "auroc_spread"}


def test_rows_of_classes_with_too_few_examples_do_not_leave_and_neither_do_sums_over_them(
    tmp_path: Path,
) -> None:
    labels = np.array([0] * 20 + [1] * 6, np.int64)
    silo = silo_holding(tmp_path, "s0", np.eye(6, dtype=np.float32)[labels], labels)
    spec = job_spec(
        "fedavg",
        1,
        data={"validationFraction": 0.5},
        evaluation={"metrics": ["recall"]},
        privacy={"minSamplesPerClass": 5},
    )
    answering = runners(spec, [silo], tmp_path)
    engine = federate(tmp_path, spec, answering)
    context = answering["silos/s0"].context
    assert np.bincount(context.validation.labels.numpy()).tolist() == [10, 3]
    (line,) = engine.history()
    assert line["perClass"]["recall"][1] is None
    only = context.validation.take(np.arange(10))
    scored = evaluate(context.model(model_of(engine)), only)
    assert line["metrics"]["loss"] == pytest.approx(scored.loss)


@pytest.mark.parametrize("count", [-1, 2**62])
def test_counts_that_are_none_fail_the_job_and_name_the_silo(count: int) -> None:
    rows = {"confusion/1": np.array([3, count], np.int64)}
    sent = answered({"silos/s0": {"confusion": rows}})
    with pytest.raises(MethodError, match=f"silo silos/s0: confusion/1: {count} is no number of examples"):
        evaluation_record(sent, ChosenMetrics.of(["recall"]), 2)


def test_what_leaves_is_declared_and_no_more_where_the_aggregator_scores() -> None:
    step = JobPlan(bound_method("fedavg", evaluation={"metrics": METRICS})).step(EVALUATE)
    assert [payload.kind for payload in step.payloads] == ["confusion"]
    assert set(step.names) == {"accuracy", "loss", "auroc", "named_scores"}
    assert {metric.name: metric.limits for metric in step.metrics}["auroc"] == (0, 1)
    held = JobPlan(bound_method("fedavg", evaluation={"metrics": METRICS, "testDataset": "t"})).step(EVALUATE)
    assert (held.payloads, held.names) == ((), ("accuracy", "loss"))
