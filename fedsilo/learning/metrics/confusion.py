"""Figures that follow from counts of answers alone, so that sums over silos give them exactly.

Definitions are scikit-learn's, with `zero_division=0`, which torchmetrics shares: a class counts in a mean if it occurs
among labels or answers, and in balanced accuracy if it occurs among labels; where labels do not exclude one another,
each counts. Where a class or label does not occur, its own figure is undefined, and None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsilo.learning.metrics.catalogue import CONFUSION_MATRIX, MAX_PER_CLASS

FiguresPerClass = tuple[float | None, ...]

LABEL_OUTCOMES = ("absent", "wrongly found", "missed", "found")
"""What becomes of an example's label: 2 x (whether it holds) + (whether the model says so)."""


@dataclass(frozen=True)
class EvaluationMetrics:
    """What an evaluation has found.

    :param per_class: name of a metric -> its value for each class, None where that is undefined.
    :param confusion: [class][answer] -> examples, where the job asks for that.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    per_class: Mapping[str, FiguresPerClass] = field(default_factory=dict)
    confusion: tuple[tuple[int, ...], ...] | None = None

    def record(self) -> dict[str, Any]:
        """Figures as fields of a round's record, without those that are empty."""
        found: dict[str, Any] = {"metrics": dict(self.metrics)}
        if self.per_class:
            found["perClass"] = {name: list(values) for name, values in self.per_class.items()}
        if self.confusion is not None:
            found["confusion"] = [list(row) for row in self.confusion]
        return found

    def and_those(self, other: EvaluationMetrics) -> EvaluationMetrics:
        """The figures of both evaluations together; of a metric in both, that of the other counts."""
        return EvaluationMetrics(
            {**self.metrics, **other.metrics},
            {**self.per_class, **other.per_class},
            self.confusion if other.confusion is None else other.confusion,
        )


def count_figures(
    confusion: np.ndarray, chosen: Collection[str], positive: int | None = None
) -> EvaluationMetrics:
    """The chosen metrics of a confusion matrix of examples or pixels.

    :param confusion: (classes, classes), integers: [class of the example, answer].
    :param positive: the one class that metrics are of which others give by class; None for the mean over classes.
    """
    correct = confusion.diagonal().astype(np.float64)
    labels, answers = confusion.sum(axis=1), confusion.sum(axis=0)
    overlap = _ratio(2 * correct, labels + answers)
    values = {
        "recall": _ratio(correct, labels),
        "precision": _ratio(correct, answers),
        "f1": overlap,
        "dice": overlap,
        "iou": _ratio(correct, labels + answers - correct),
    }
    occurs = labels + answers > 0
    counted = of_positive(occurs, positive)
    metrics = {
        name: float(values[name][counted].mean()) for name in values if name in chosen and counted.any()
    }
    if "balanced_accuracy" in chosen and labels.any():
        metrics["balanced_accuracy"] = float(values["recall"][labels > 0].mean())
    # A recall without examples, or a precision of a class that is neither there nor answered, is no number.
    defined = {name: labels > 0 if name == "recall" else occurs for name in values}
    per_class = {
        name: per_class_values(values[name], defined[name])
        for name in values
        if name in chosen and len(confusion) <= MAX_PER_CLASS
    }
    matrix = tuple(tuple(int(count) for count in row) for row in confusion)
    return EvaluationMetrics(metrics, per_class, matrix if CONFUSION_MATRIX in chosen else None)


def label_figures(counts: np.ndarray, chosen: Collection[str]) -> EvaluationMetrics:
    """The chosen metrics of labels, each for itself. In a mean every counted label weighs the same.

    :param counts: (labels, 4), integers: examples by `LABEL_OUTCOMES`; a row of zeros is a label that is not counted.
    """
    _, wrong, missed, found = counts.T.astype(np.float64)
    values = {
        "recall": _ratio(found, found + missed),
        "precision": _ratio(found, found + wrong),
        "f1": _ratio(2 * found, 2 * found + wrong + missed),
    }
    counted, occurs = counts.sum(axis=1) > 0, counts[:, 1:].sum(axis=1) > 0
    metrics = {
        name: float(values[name][counted].mean()) for name in values if name in chosen and counted.any()
    }
    if "f1_micro" in chosen and counted.any():
        metrics["f1_micro"] = float(
            _ratio(2 * found.sum(keepdims=True), (2 * found + wrong + missed).sum(keepdims=True))[0]
        )
    defined = {name: found + missed > 0 if name == "recall" else occurs for name in values}
    per_class = {
        name: per_class_values(values[name], defined[name])
        for name in values
        if name in chosen and len(counts) <= MAX_PER_CLASS
    }
    return EvaluationMetrics(metrics, per_class)


def of_positive(classes: np.ndarray, positive: int | None) -> np.ndarray:
    """Which of the classes, (n,) booleans, a metric is the mean over: the positive one alone, or all where none is."""
    return classes if positive is None else classes & (np.arange(len(classes)) == positive)


def per_class_values(values: np.ndarray, defined: np.ndarray) -> FiguresPerClass:
    """The values as plain numbers, None where undefined."""
    return tuple(float(value) if known else None for value, known in zip(values, defined, strict=True))


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)
    return ratio
