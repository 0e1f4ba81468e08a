"""The metrics of a job on one set of examples or on several together, fed batch by batch while a model is scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsilo.api.python_import import error_summary, import_user_code, place_of
from fedsilo.errors import MethodError
from fedsilo.learning.metrics.batches import no_sums, sums_of
from fedsilo.learning.metrics.catalogue import MAX_PER_CLASS
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import EvaluationMetrics, of_positive, per_class_values
from fedsilo.learning.metrics.sums import ScoreSums, pooled_sums
from fedsilo.tasks.interface import LearningTask


class Scores:
    """Sums and predictions of one evaluation.

    Predictions are kept only where a metric needs all of them: 4 bytes for each number that the model gives.

    :param task: what the model learns.
    :raises ManifestInvalid: as `require_metrics`.
    :raises MethodError: when an own metric fails, below.
    """

    def __init__(self, chosen: ChosenMetrics, task: LearningTask) -> None:
        self._chosen = chosen
        self._task = task
        self._sums = no_sums(chosen, task.outputs)
        self._batches: list[tuple[Tensor, Tensor]] = []
        require_metrics(chosen)

    @classmethod
    def pooled_scores(cls, scores: Sequence[Scores]) -> Scores:
        """Scores of several evaluations as if all their examples were one set."""
        found = cls(scores[0]._chosen, scores[0]._task)
        found._sums = pooled_sums(each._sums for each in scores)
        for each in scores:
            found._batches += each._batches
        return found

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch to the scores: what the model gives, and the learning task's targets."""
        self._sums = self._sums.merge(sums_of(self._chosen, outputs, targets))
        if self._chosen.by_silo:
            self._batches.append((self._task.predictions(outputs).cpu(), targets.cpu()))

    @property
    def sums(self) -> ScoreSums:
        """The sums of the evaluation, which add up over silos."""
        return self._sums

    def figures(self) -> EvaluationMetrics:
        """Figures of all chosen metrics; one that is undefined on these examples is left out."""
        return self._sums.figures(self._chosen).and_those(self.unsummed_metrics())

    def unsummed_metrics(self) -> EvaluationMetrics:
        """Figures of the metrics that do not follow from sums."""
        own = {name: self._own_value(reference) for name, reference in self._chosen.own.items()}
        found = EvaluationMetrics({name: value for name, value in own.items() if math.isfinite(value)})
        if not self._batches or not self._chosen.predictions:
            return found
        probabilities, targets = (torch.cat(parts) for parts in zip(*self._batches, strict=True))
        if targets.ndim == 1:
            targets = torch.nn.functional.one_hot(targets, probabilities.shape[1])
        for name in self._chosen.predictions:
            found = found.and_those(_one_against_others(name, probabilities, targets, self._chosen.positive))
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


def _one_against_others(
    name: str, predictions: Tensor, targets: Tensor, positive: int | None
) -> EvaluationMetrics:
    """A binary metric of scikit-learn's for each class or label that has examples of both kinds, and their mean.

    :param predictions: probabilities, (n, classes); of a model that has none, the metric is undefined.
    :param targets: of the same shape, 1 for those of the class and 0 for others; other numbers do not count.
    :param positive: the one class that the metric is of; None for the mean.
    """
    from sklearn import metrics

    function: Callable[..., float] = getattr(metrics, _OF_SCIKIT_LEARN[name])
    own, others = (torch.eq(targets, value).sum(dim=0).numpy() for value in (1, 0))
    known = predictions.isfinite().all(dim=0).numpy()
    defined = known & (own > 0) & (others > 0) & (own + others == len(targets))
    values = np.zeros(len(defined))
    for label in np.flatnonzero(defined).tolist():
        values[label] = function(targets[:, label].numpy(), predictions[:, label].numpy())
    counted = of_positive(defined, positive)
    if not counted.any():
        return EvaluationMetrics()
    per_class = {name: per_class_values(values, defined)} if len(defined) <= MAX_PER_CLASS else {}
    return EvaluationMetrics({name: float(values[counted].mean())}, per_class)


_OF_SCIKIT_LEARN = {"auroc": "roc_auc_score", "average_precision": "average_precision_score"}
"""Name of every metric of source `predictions` -> scikit-learn's, which counts in double precision."""


def require_metrics(chosen: ChosenMetrics) -> None:
    """Check that what computes the metrics is installed.

    :raises ManifestInvalid: when the module of an own metric is not.
    """
    for reference in chosen.own.values():
        own_metric(reference)


def own_metric(reference: str) -> Callable[[], Any]:
    """The factory of a job's own metric; what it gives has `update(predictions, targets)` and `compute()`.

    :raises ManifestInvalid: when it cannot be imported.
    :raises MethodError: when its module raises.
    """
    remedy = "install its package in the images of aggregator and trainer"
    factory: Callable[[], Any] = import_user_code(reference, field="spec.evaluation.metrics", remedy=remedy)
    return factory


def _call(reference: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as failure:
        raise MethodError(
            f"spec.evaluation.metrics: {reference!r}: failed with {error_summary(failure, saw_data=True)}"
            f"{place_of(failure, (__file__,))}; it is made by factory(), fed by update(predictions, targets) and read "
            "by compute()"
        ) from failure
