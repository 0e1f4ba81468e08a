"""With a positive class, metrics by class are scikit-learn's binary ones of all silos' predictions together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch import Tensor

from fedsilo.learning.metrics.chosen import ChosenMetrics, check_metrics, class_scope
from fedsilo.learning.metrics.scores import Scores
from tests.federate import job_spec
from tests.unit.tasks.specs import data_of, task_of

BY_COUNTS, BY_PREDICTIONS = ("recall", "precision", "f1"), ("average_precision", "auroc")
TASK = task_of("classification", data_of(6, classes=2))
MASKS = task_of("segmentation", data_of(1, 2, 3, classes=2))


@st.composite
def binary_predictions(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, list[int]]:
    """Logits with ties, labels of which one class may be missing, the positive class, and whose each example is."""
    n = draw(st.integers(1, 60))
    cells = draw(st.lists(st.integers(-3, 3), min_size=2 * n, max_size=2 * n))
    labels = draw(
        st.lists(st.sampled_from(draw(st.sampled_from([[0], [1], [0, 1]]))), min_size=n, max_size=n)
    )
    owners = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    logits = torch.tensor(cells, dtype=torch.float32).reshape(n, 2)
    return logits, torch.tensor(labels), draw(st.sampled_from([0, 1])), owners


@given(binary_predictions())
@settings(max_examples=80, deadline=None)
def test_metrics_of_the_positive_class_are_scikit_learns_binary_ones(
    found: tuple[Tensor, Tensor, int, list[int]],
) -> None:
    logits, labels, positive, owners = found
    chosen = ChosenMetrics.of((*BY_COUNTS, *BY_PREDICTIONS), "class", positive)
    silos = [Scores(chosen, TASK) for _ in range(3)]
    for silo, own in enumerate(silos):
        own.update(logits[torch.tensor(owners) == silo], labels[torch.tensor(owners) == silo])
    figures = Scores.pooled_scores(silos).figures()
    answers, probabilities = logits.argmax(dim=1).numpy(), logits.softmax(dim=1)[:, positive].numpy()
    assert figures.metrics == pytest.approx(
        _binary_scores(labels.numpy(), answers, probabilities, positive), abs=1e-12
    )
    if "f1" in figures.metrics:
        assert figures.metrics["f1"] == figures.per_class["f1"][positive]


def _binary_scores(
    labels: np.ndarray, answers: np.ndarray, probabilities: np.ndarray, positive: int
) -> dict[str, float]:
    """What scikit-learn finds, without figures of a class that does not occur, or of examples that are all alike."""
    expected = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of a precision without answers
        if positive in labels or positive in answers:
            for name in BY_COUNTS:
                function: Callable[..., float] = getattr(sklearn, f"{name}_score")
                expected[name] = function(
                    labels, answers, pos_label=positive, average="binary", zero_division=0
                )
    if len(set(labels)) == 2:
        is_positive = labels == positive
        expected["average_precision"] = sklearn.average_precision_score(is_positive, probabilities)
        expected["auroc"] = sklearn.roc_auc_score(is_positive, probabilities)
    return expected


def test_of_masks_it_is_the_positive_classs_pixels() -> None:
    logits = torch.tensor([[[[2.0, 0, 0], [0, 0, 2]], [[0.0, 1, 1], [1, 1, 0]]]])
    masks = torch.tensor([[[0, 1, 1], [0, 1, 1]]])
    chosen = ChosenMetrics.of(("dice", "iou", "recall"), "pixels", 1)
    scores = Scores(chosen, MASKS)
    scores.update(logits, masks)
    assert scores.figures().metrics == pytest.approx(
        {"dice": 6 / 8, "iou": 3 / 5, "recall": 3 / 4}, abs=1e-12
    )


def _spec(positive: Any = None, metrics: Sequence[str] = ("f1",), classes: Any = ("no", "yes")) -> Any:
    evaluation = {"metrics": list(metrics)} | ({} if positive is None else {"positiveClass": positive})
    classes = list(classes) if isinstance(classes, tuple) else classes
    return job_spec("fedavg", 2, evaluation=evaluation, data={"classes": classes})


@pytest.mark.parametrize(
    ("positive", "metrics", "classes", "said"),
    [
        ("yess", ("f1",), ("no", "yes"), "is not among spec.data.classes; did you mean yes?"),
        (1, ("f1",), ("no", "yes"), "is not among spec.data.classes; use one of no, yes"),
        (2, ("f1",), 2, "is not among spec.data.classes; use the number of a class, 0 to 1"),
        ("yes", ("f1",), 2, "is not among spec.data.classes; use the number of a class, 0 to 1"),
        (
            1,
            ("f1",),
            3,
            "is for classification of two classes, or masks of two, and the job learns 3 classes; remove it; perClass",
        ),
        (1, ("balanced_accuracy",), 2, "matters to no metric of spec.evaluation.metrics; add recall"),
    ],
)
def test_a_positive_class_that_cannot_be_is_refused_with_what_can(
    positive: Any, metrics: Sequence[str], classes: Any, said: str
) -> None:
    ((path, value, problem, remedy),) = check_metrics(_spec(positive, metrics, classes))
    assert (path, value) == ("spec.evaluation.positiveClass", positive)
    assert f"{problem}; {remedy}".startswith(said)


@pytest.mark.parametrize(
    ("spec", "scope"),
    [
        (_spec("yes", ("recall", "f1")), "recall, f1 are of the class yes"),
        (_spec(0, ("f1", "accuracy"), 2), "f1 is of the class 0"),
        (
            _spec(None, ("recall", "f1")),
            "recall, f1 are means over both classes, as evaluation.positiveClass names none",
        ),
        (_spec(None, ("balanced_accuracy",)), None),
        (_spec(None, ("f1",), 3), None),
    ],
)
def test_a_job_of_two_classes_says_of_which_its_metrics_are(spec: Any, scope: str | None) -> None:
    assert class_scope(spec) == scope
    assert ChosenMetrics.of_job(spec).positive == {"yes": 1, 0: 0}.get(spec.evaluation.positive_class)
