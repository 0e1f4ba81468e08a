"""The metrics of every learning task are torchmetrics' of the pooled predictions, however they are divided."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch import Tensor

from fedsilo.learning.metrics.catalogue import METRICS, metrics_for
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import EvaluationMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.places import UNSCORED_TARGET
from tests.unit.learning.metrics import reference
from tests.unit.tasks.specs import data_of, task_of

LABELS = task_of("multilabel", data_of(6, classes=3))
NUMBERS = task_of("regression", data_of(6), outputs=2)
PIXELS = task_of("segmentation", data_of(1, 2, 3, classes=3), ignore=255)
TOKENS = task_of("language", data_of(4), vocabulary=5)


def score_figures(task: LearningTask, outputs: Tensor, targets: Tensor, owners: Tensor) -> EvaluationMetrics:
    """Every built-in metric of the task, of examples that three silos hold."""
    chosen = ChosenMetrics.of(
        [name for name in metrics_for(task.answers) if METRICS[name].source != "always"], task.answers
    )
    silos = [Scores(chosen, task) for _ in range(3)]
    for owner, silo in enumerate(silos):
        for part in torch.split(torch.nonzero(owners == owner).flatten(), 4):
            silo.update(outputs[part], targets[part])
    return Scores.pooled_scores(silos).figures()


@st.composite
def of_task(draw: st.DrawFn, task: LearningTask, low: int, high: int, targets: tuple[int, ...]) -> Any:
    """Outputs with ties, targets from `low` to `high`, and the silo of each example."""
    n = draw(st.integers(3, 12))
    shape = (n, *task.output_shape)
    whole = torch.tensor(
        draw(st.lists(st.integers(-3, 3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    )
    size = n * int(np.prod(targets))
    wanted = torch.tensor(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)))
    owners = torch.tensor(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    return whole.float().reshape(shape), wanted.reshape(n, *targets), owners


@given(of_task(LABELS, 0, 1, (3,)))
@settings(max_examples=20, deadline=None)
def test_labels(found: tuple[Tensor, Tensor, Tensor]) -> None:
    outputs, targets, owners = found
    figures = score_figures(LABELS, outputs, targets.float(), owners)
    expected = {
        "recall": reference.classification.multilabel_recall(outputs, targets, 3).item(),
        "precision": reference.classification.multilabel_precision(outputs, targets, 3).item(),
        "f1": reference.classification.multilabel_f1_score(outputs, targets, 3).item(),
        "f1_micro": reference.classification.multilabel_f1_score(outputs, targets, 3, average="micro").item(),
    }
    assert {name: figures.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    answers = (outputs > 0).int()
    macro = sklearn.f1_score(targets, answers, average="macro", zero_division=0)
    assert figures.metrics["f1"] == pytest.approx(macro, rel=1e-9)
    areas = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics warns of labels without examples of both kinds
        for name in ("auroc", "average_precision"):
            area = getattr(reference.classification, f"multilabel_{name}")
            areas[name] = area(outputs, targets, 3, average=None)
    both = [label for label in range(3) if 0 < targets[:, label].sum() < len(targets)]
    for name, values in areas.items():
        by_label = [values[label].item() if label in both else None for label in range(3)]
        assert figures.per_class.get(name, (None,) * 3) == pytest.approx(by_label, abs=1e-6)


@given(of_task(NUMBERS, -4, 4, (2,)))
@settings(max_examples=20, deadline=None)
def test_numbers(found: tuple[Tensor, Tensor, Tensor]) -> None:
    outputs, targets, owners = found
    figures = score_figures(NUMBERS, outputs, targets.float() + 1000, owners).metrics
    shifted, wanted = outputs.double(), targets.double() + 1000
    expected = {"rmse": reference.mean_squared_error(shifted, wanted, squared=False).item()}
    if all(len(set(column.tolist())) > 1 for column in targets.T):
        expected["r2"] = reference.r2_score(shifted, wanted).item()
        assert sklearn.r2_score(wanted, shifted) == pytest.approx(figures["r2"], rel=1e-6)
    assert figures == pytest.approx(expected, rel=1e-5)


@given(of_task(PIXELS, -1, 2, (2, 3)))
@settings(max_examples=20, deadline=None)
def test_pixels(found: tuple[Tensor, Tensor, Tensor]) -> None:
    outputs, targets, owners = found
    targets = torch.where(targets < 0, UNSCORED_TARGET, targets)
    figures = score_figures(PIXELS, outputs, targets, owners)
    there = targets != UNSCORED_TARGET
    if not there.any():
        assert figures.metrics == {}
        return
    answers, truth = outputs.argmax(dim=1)[there], targets[there]
    macro: dict[str, Any] = {"num_classes": 3, "average": "macro"}
    expected = {
        "recall": reference.classification.multiclass_recall(answers, truth, **macro).item(),
        "precision": reference.classification.multiclass_precision(answers, truth, **macro).item(),
        "f1": reference.classification.multiclass_f1_score(answers, truth, **macro).item(),
        "dice": reference.classification.multiclass_f1_score(answers, truth, **macro).item(),
        "iou": reference.classification.multiclass_jaccard_index(answers, truth, **macro).item(),
    }
    assert {name: figures.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert figures.metrics["iou"] == pytest.approx(
        sklearn.jaccard_score(truth, answers, average="macro"), rel=1e-9
    )
    matrix = sklearn.confusion_matrix(truth, answers, labels=range(3))
    assert figures.confusion == tuple(map(tuple, matrix.tolist()))


@given(of_task(TOKENS, -1, 4, (4,)))
@settings(max_examples=20, deadline=None)
def test_tokens(found: tuple[Tensor, Tensor, Tensor]) -> None:
    outputs, targets, owners = found
    targets = torch.where(targets < 0, UNSCORED_TARGET, targets)
    figures = score_figures(TOKENS, outputs, targets, owners).metrics
    if not (targets != UNSCORED_TARGET).any():
        assert figures == {}
        return
    expected = reference.text.perplexity(outputs.double(), targets, ignore_index=UNSCORED_TARGET).item()
    assert figures == pytest.approx({"perplexity": expected}, rel=1e-5)
