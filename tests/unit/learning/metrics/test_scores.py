"""Every metric is torchmetrics' or scikit-learn's of all predictions, however they are divided among silos."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch import Tensor

from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.learning.metrics.catalogue import METRICS, metrics_for
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import count_figures
from fedsilo.learning.metrics.scores import Scores
from tests.unit.learning.metrics import reference
from tests.unit.tasks.specs import data_of, task_of

CLASSES = 4
BUILT_IN = tuple(name for name in metrics_for("class") if METRICS[name].source != "always")
TASK = task_of("classification", data_of(6, classes=CLASSES))
OWN_METRICS = "python:tests.unit.learning.metrics.own"


def chosen_metrics(*names: str) -> ChosenMetrics:
    return ChosenMetrics.of(names)


@st.composite
def predictions(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Logits with ties and labels, of which some classes may be missing."""
    n = draw(st.integers(2, 60))
    cells = st.lists(st.integers(-3, 3), min_size=n * CLASSES, max_size=n * CLASSES)
    labels = draw(st.lists(st.integers(0, CLASSES - 1), min_size=n, max_size=n))
    return torch.tensor(draw(cells), dtype=torch.float32).reshape(n, CLASSES), torch.tensor(labels)


@given(predictions(), st.lists(st.integers(0, 2), min_size=60, max_size=60))
@settings(max_examples=25, deadline=None)
def test_every_metric_is_that_of_the_pooled_predictions(
    found: tuple[Tensor, Tensor], owners: list[int]
) -> None:
    logits, labels = found
    owner = torch.tensor(owners[: len(labels)])
    silos = [Scores(chosen_metrics(*BUILT_IN), TASK) for _ in range(3)]
    for silo, own in enumerate(silos):
        for part in torch.split(torch.arange(len(labels))[owner == silo], 7):
            own.update(logits[part], labels[part])
    figures = Scores.pooled_scores(silos).figures()

    answers, probabilities = logits.argmax(dim=1), logits.softmax(dim=1)
    expected = {
        "recall": reference.classification.multiclass_recall(
            answers, labels, CLASSES, average="macro"
        ).item(),
        "precision": reference.classification.multiclass_precision(
            answers, labels, CLASSES, average="macro"
        ).item(),
        "f1": reference.classification.multiclass_f1_score(answers, labels, CLASSES, average="macro").item(),
        "calibration_error": reference.classification.multiclass_calibration_error(
            probabilities, labels, CLASSES
        ).item(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of answers that are no labels
        expected["balanced_accuracy"] = sklearn.balanced_accuracy_score(labels, answers)
    for name in ("recall", "precision", "f1"):
        function: Callable[..., float] = getattr(sklearn, f"{name}_score")
        sklearns = function(labels.numpy(), answers.numpy(), average="macro", zero_division=0)
        assert figures.metrics[name] == pytest.approx(sklearns, rel=1e-9)
    per_class: dict[str, Callable[..., float]] = {
        "auroc": sklearn.roc_auc_score,
        "average_precision": sklearn.average_precision_score,
    }
    for name, function in per_class.items():
        values = [_against_others(function, probabilities, labels, label) for label in range(CLASSES)]
        assert figures.per_class.get(name, (None,) * CLASSES) == pytest.approx(values, abs=1e-6)
        known = [value for value in values if value is not None]
        if known:
            expected[name] = float(np.mean(known))
    assert figures.metrics == pytest.approx(expected, abs=1e-6)
    matrix = sklearn.confusion_matrix(labels, answers, labels=range(CLASSES))
    assert figures.confusion == tuple(map(tuple, matrix.tolist()))


def _against_others(
    function: Callable[..., float], probabilities: Tensor, labels: Tensor, label: int
) -> float | None:
    is_of_class = labels == label
    if not 0 < is_of_class.sum() < len(labels):
        return None
    return float(function(is_of_class.int(), probabilities[:, label]))


def test_a_mean_over_all_classes_is_torchmetrics_own() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(400, CLASSES, generator=generator)
    labels = torch.randint(CLASSES, (400,), generator=generator)
    scores = Scores(chosen_metrics("auroc", "average_precision"), TASK)
    scores.update(logits, labels)
    probabilities = logits.softmax(dim=1)
    assert scores.figures().metrics == pytest.approx(
        {
            "auroc": reference.classification.multiclass_auroc(probabilities, labels, CLASSES).item(),
            "average_precision": reference.classification.multiclass_average_precision(
                probabilities, labels, CLASSES
            ).item(),
        }
    )


def test_a_class_that_does_not_occur_has_no_figure() -> None:
    figures = count_figures(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]), ("recall", "precision", "f1"))
    assert figures.per_class["recall"] == (0.75, 1.0, None)
    assert figures.per_class["precision"] == (1.0, 0.8, None)
    assert figures.metrics["recall"] == 0.875


def test_without_a_single_count_there_is_no_figure() -> None:
    figures = count_figures(np.zeros((3, 3), np.int64), ("recall", "balanced_accuracy"))
    assert figures.metrics == {}
    assert figures.per_class["recall"] == (None, None, None)


def test_an_own_metric_is_reported_by_its_name() -> None:
    scores = Scores(chosen_metrics(f"{OWN_METRICS}:TopTwo"), TASK)
    scores.update(torch.tensor([[3.0, 2, 1, 0], [3, 2, 1, 0]]), torch.tensor([1, 3]))
    assert scores.figures().metrics == {"TopTwo": 0.5}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Failing", r"failed with ValueError: no idea at .*/own\.py:\d+; it is made"),
        ("Leaving", r"failed with SystemExit: 0 at .*/own\.py:\d+; it is made"),
        ("ManyScores", "compute.. gave a list that is not one number"),
        ("nothing_metric", "gave a NoneType without update"),
    ],
)
def test_an_own_metric_that_fails_is_named(name: str, said: str) -> None:
    scores = Scores(chosen_metrics(f"{OWN_METRICS}:{name}"), TASK)
    scores.update(torch.zeros(2, CLASSES), torch.tensor([1, 3]))
    with pytest.raises(MethodError, match=f"{name}.*{said}"):
        scores.figures()


def test_what_is_not_installed_is_named_before_anything_is_computed() -> None:
    with pytest.raises(ManifestInvalid, match=r"Absent.*cannot be imported"):
        Scores(chosen_metrics(f"{OWN_METRICS}:Absent"), TASK)


def test_a_model_without_finite_probabilities_has_no_metric_of_them() -> None:
    scores = Scores(chosen_metrics("auroc", "average_precision", "recall"), TASK)
    scores.update(torch.full((4, CLASSES), torch.nan), torch.tensor([0, 1, 2, 3]))
    assert set(scores.figures().metrics) == {"recall"}


def test_torchmetrics_is_imported_by_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while tests are collected, when pytest asks all that a module has what it wraps."""
    asked: list[str] = []
    monkeypatch.setattr(reference, "import_module", asked.append)
    assert not hasattr(reference, "__wrapped__")
    assert asked == []
