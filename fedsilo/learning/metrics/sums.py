"""What an evaluation adds up, of one set of examples or several, and the metrics that follow from it exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fedsilo.data.statistics import FeatureStatistics
from fedsilo.learning.metrics.catalogue import CALIBRATION_ERROR, PERPLEXITY, R2, RMSE
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import EvaluationMetrics, count_figures, label_figures

CALIBRATION_BINS = 15
"""Bins of equal width (Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, 2017)."""

BIN_ROWS = CALIBRATION_BINS + 1
"""The last has the answers of confidence 1, which are a bin of their own, as torchmetrics has it."""


@dataclass(frozen=True)
class ScoreSums:
    """Each is None where no metric of the job needs it.

    :param counts: of classes (classes, classes): [class, answer]; of labels (labels, 4); integers.
    :param bins: (BIN_ROWS, 3): examples, their confidence and correct answers, summed.
    :param values: statistics of the targets, one for each output, and then of the errors.
    :param tokens: (2,): how many are scored, and their log-likelihood in nats.
    """

    counts: np.ndarray | None = None
    bins: np.ndarray | None = None
    values: FeatureStatistics | None = None
    tokens: np.ndarray | None = None

    def merge(self, other: ScoreSums) -> ScoreSums:
        """Sums over both sets of examples together, where the same metrics are asked of both."""
        return ScoreSums(
            _sum_arrays(self.counts, other.counts),
            _sum_arrays(self.bins, other.bins),
            other.values if self.values is None or other.values is None else self.values.merge(other.values),
            _sum_arrays(self.tokens, other.tokens),
        )

    def figures(self, chosen: ChosenMetrics) -> EvaluationMetrics:
        """The metrics that follow; one that is undefined is left out."""
        found = EvaluationMetrics()
        if self.counts is not None and chosen.counts:
            found = (
                label_figures(self.counts, chosen.counts)
                if chosen.answers == "labels"
                else count_figures(self.counts, chosen.counts, chosen.positive)
            )
        metrics: dict[str, float] = {}
        if self.bins is not None and self.bins[:, 0].any():
            metrics[CALIBRATION_ERROR] = _calibration_error(self.bins)
        if self.values is not None:
            metrics |= _of_values(self.values)
        if self.tokens is not None and self.tokens[0] > 0:
            metrics[PERPLEXITY] = float(np.exp(-self.tokens[1] / self.tokens[0]))
        return found.and_those(
            EvaluationMetrics({name: metrics[name] for name in chosen.sums if name in metrics})
        )


def pooled_sums(parts: Iterable[ScoreSums]) -> ScoreSums:
    """Sums over the examples of all parts together; there is at least one part."""
    return reduce(ScoreSums.merge, parts)


def _sum_arrays(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    return None if one is None or other is None else one + other


def _calibration_error(bins: np.ndarray) -> float:
    _, confidence, correct = bins.T
    return float(np.abs(correct - confidence).sum() / bins[:, 0].sum())


def _of_values(values: FeatureStatistics) -> dict[str, float]:
    """R2 is the mean over outputs, and undefined where a target does not vary; RMSE is over all outputs together."""
    targets, errors = np.arange(len(values.count)).reshape(2, -1)
    count = values.count[errors]
    if not count.all():
        return {}
    squares = values.m2[errors] + count * values.mean[errors] ** 2
    found = {RMSE: float(np.sqrt(squares.sum() / count.sum()))}
    if values.m2[targets].all():
        found[R2] = float((1 - squares / values.m2[targets]).mean())
    return found
