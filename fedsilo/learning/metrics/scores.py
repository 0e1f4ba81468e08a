"""The metrics of a job on one set of examples or on several together, fed batch by batch while a model is scored."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsilo.api.python_import import import_own
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.learning.metrics.catalogue import MAX_PER_CLASS, ChosenMetrics
from fedsilo.learning.metrics.confusion import Figures, count_figures, per_class_values

CALIBRATION_BINS = 15
"""Bins of equal width (Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, 2017)."""


class Scores:
    """Counts and predictions of one evaluation.

    Predictions are kept only where a metric needs all of them: 4 bytes for each example and class.

    :param classes: how many there are.
    :raises ManifestInvalid: as `require_metrics`.
    :raises MethodError: when an own metric fails, below.
    """

    def __init__(self, chosen: ChosenMetrics, classes: int) -> None:
        self._chosen = chosen
        self._classes = classes
        self._counts = torch.zeros(classes * classes if chosen.confusion else 0, dtype=torch.int64)
        self._batches: list[tuple[Tensor, Tensor]] = []
        require_metrics(chosen)

    @classmethod
    def pooled(cls, scores: Sequence[Scores]) -> Scores:
        """As if all their examples were one set."""
        found = cls(scores[0]._chosen, scores[0]._classes)
        for each in scores:
            found._counts += each._counts
            found._batches += each._batches
        return found

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Take a batch: logits (n, classes) and labels (n,)."""
        if self._chosen.confusion:
            cells = labels * self._classes + logits.argmax(dim=1)
            self._counts += torch.bincount(cells, minlength=len(self._counts)).cpu()
        if self._chosen.by_silo:
            self._batches.append((logits.float().softmax(dim=1).cpu(), labels.cpu()))

    def confusion(self) -> np.ndarray:
        """(classes, classes), int64: [class of the example, answer] -> examples."""
        return self._counts.numpy().reshape(self._classes, self._classes)

    def figures(self) -> Figures:
        """All chosen metrics; one that is undefined on these examples is left out."""
        if not self._chosen.confusion:
            return self.uncounted()
        return count_figures(self.confusion(), self._chosen.confusion).and_those(self.uncounted())

    def uncounted(self) -> Figures:
        """Those metrics that do not follow from the confusion matrix."""
        own = {name: self._own_value(reference) for name, reference in self._chosen.own.items()}
        found = Figures({name: value for name, value in own.items() if math.isfinite(value)})
        if not self._batches or not self._chosen.predictions:
            return found
        probabilities, labels = (torch.cat(parts) for parts in zip(*self._batches, strict=True))
        for name in self._chosen.predictions:
            found = found.and_those(_COMPUTED[name](probabilities, labels))
        return found

    def _own_value(self, reference: str) -> float:
        metric = _call(reference, own_metric(reference))
        for method in ("update", "compute"):
            if not callable(getattr(metric, method, None)):
                raise MethodError(
                    f"spec.evaluation.metrics: {reference!r}: the factory gave a {type(metric).__name__} without "
                    f"{method}(); return a torchmetrics.Metric, or an object with update and compute"
                )
        for batch in self._batches:
            _call(reference, partial(metric.update, *batch))
        value = _call(reference, metric.compute)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            raise MethodError(
                f"spec.evaluation.metrics: {reference!r}: compute() gave a {type(value).__name__} that is not one "
                "number; return a float, or a tensor with one element"
            ) from None


def _one_against_others(name: str, predictions: Tensor, labels: Tensor) -> Figures:
    """A binary metric for each class, and the mean over those that have examples of both kinds."""
    from torchmetrics.functional import classification

    function: Callable[..., Tensor] = getattr(classification, f"binary_{name}")
    counts = torch.bincount(labels, minlength=predictions.shape[1]).numpy()
    defined = (counts > 0) & (counts < len(labels))
    values = np.zeros(len(counts))
    for label in np.flatnonzero(defined).tolist():
        values[label] = function(predictions[:, label], torch.eq(labels, label).long()).item()
    if not defined.any():
        return Figures()
    per_class = {name: per_class_values(values, defined)} if len(counts) <= MAX_PER_CLASS else {}
    return Figures({name: float(values[defined].mean())}, per_class)


def _calibration_error(predictions: Tensor, labels: Tensor) -> Figures:
    from torchmetrics.functional.classification import multiclass_calibration_error

    error = multiclass_calibration_error(
        predictions, labels, predictions.shape[1], CALIBRATION_BINS, norm="l1"
    )
    return Figures({"calibration_error": error.item()})


_COMPUTED: dict[str, Callable[[Tensor, Tensor], Figures]] = {
    "auroc": partial(_one_against_others, "auroc"),
    "average_precision": partial(_one_against_others, "average_precision"),
    "calibration_error": _calibration_error,
}
"""Name of every metric of source `predictions` -> its function of probabilities (n, classes) and labels (n,)."""


def require_metrics(chosen: ChosenMetrics) -> None:
    """Check that what computes the metrics is installed.

    :raises ManifestInvalid: when torchmetrics or the module of an own metric is not.
    """
    for reference in chosen.own.values():
        own_metric(reference)
    if chosen.predictions and not _is_installed("torchmetrics"):
        raise ManifestInvalid(
            f"spec.evaluation.metrics: {chosen.predictions[0]!r}: needs torchmetrics, which is not installed here; "
            "install fedsilo[metrics], or name metrics that follow from counts, such as balanced_accuracy and recall"
        )


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def own_metric(reference: str) -> Callable[[], Any]:
    """The factory of a job's own metric; what it gives has `update(probabilities, labels)` and `compute()`.

    :raises ManifestInvalid: when it cannot be imported.
    :raises MethodError: when its module raises.
    """
    remedy = "install its package in the images of aggregator and trainer"
    factory: Callable[[], Any] = import_own(reference, field="spec.evaluation.metrics", remedy=remedy)
    return factory


def _call(reference: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as failure:
        raise MethodError(
            f"spec.evaluation.metrics: {reference!r}: failed with {type(failure).__name__}: {failure}; it is made by "
            "factory(), fed by update(probabilities, labels) and read by compute()"
        ) from failure
