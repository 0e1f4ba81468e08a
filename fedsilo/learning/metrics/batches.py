"""What one batch adds to the sums of an evaluation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedsilo.data.statistics import FeatureStatistics
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import LABEL_OUTCOMES
from fedsilo.learning.metrics.sums import BIN_ROWS, CALIBRATION_BINS, ScoreSums
from fedsilo.tasks.places import UNSCORED_TARGET


def no_sums(chosen: ChosenMetrics, outputs: int) -> ScoreSums:
    """Sums of a job's metrics over no example.

    :param outputs: numbers that the model gives for an example, a pixel or a token.
    """
    columns = len(LABEL_OUTCOMES) if chosen.answers == "labels" else outputs
    return ScoreSums(
        np.zeros((outputs, columns), np.int64) if chosen.counts else None,
        np.zeros((BIN_ROWS, 3)) if chosen.bins else None,
        FeatureStatistics.none(2 * outputs) if chosen.answers == "numbers" and chosen.sums else None,
        np.zeros(2) if chosen.answers == "tokens" and chosen.sums else None,
    )


def sums_of(chosen: ChosenMetrics, outputs: Tensor, targets: Tensor) -> ScoreSums:
    """Sums of a job's metrics over a batch; targets that are `UNSCORED_TARGET` do not count.

    :param outputs: what the model gives, (n, classes), (n, labels), (n, outputs), (n, classes, *sides) or
        (n, length, vocabulary).
    """
    labels, numbers = chosen.answers == "labels", chosen.answers == "numbers"
    counts = None
    if chosen.counts:
        counts = _outcomes(outputs, targets) if labels else _confusion(outputs, targets)
    return ScoreSums(
        counts,
        _bins(outputs, targets) if chosen.bins else None,
        _values(outputs, targets) if numbers and chosen.sums else None,
        _tokens(outputs, targets) if chosen.answers == "tokens" and chosen.sums else None,
    )


def _confusion(logits: Tensor, targets: Tensor) -> np.ndarray:
    classes = logits.shape[1]
    scored = targets != UNSCORED_TARGET
    cells = targets[scored] * classes + logits.argmax(dim=1)[scored]
    return _array(cells.bincount(minlength=classes * classes)).reshape(classes, classes)


def _outcomes(logits: Tensor, targets: Tensor) -> np.ndarray:
    """Count the examples of each label by `LABEL_OUTCOMES`, (labels, 4), int64."""
    outcome = 2 * (targets > 0.5).long() + (logits > 0).long()
    each = functional.one_hot(outcome, len(LABEL_OUTCOMES)) * (targets != UNSCORED_TARGET).unsqueeze(-1)
    return _array(each.sum(dim=0))


def _bins(logits: Tensor, targets: Tensor) -> np.ndarray:
    """Sums of the calibration bins, (BIN_ROWS, 3), closed below, in single precision, as torchmetrics has them."""
    confidence, answers = logits.float().softmax(dim=1).max(dim=1)
    edges = torch.linspace(0, 1, CALIBRATION_BINS + 1, device=confidence.device)
    places = torch.bucketize(confidence, edges, right=True) - 1
    rows = torch.stack([torch.ones_like(confidence), confidence, (answers == targets).float()], dim=1)
    return _array(
        torch.zeros(BIN_ROWS, 3, dtype=torch.float64, device=rows.device).index_add_(0, places, rows.double())
    )


def _values(outputs: Tensor, targets: Tensor) -> FeatureStatistics:
    errors = outputs.double() - targets.double()
    return FeatureStatistics.of(_array(torch.cat([targets.double(), errors], dim=1)))


def _tokens(logits: Tensor, targets: Tensor) -> np.ndarray:
    scored = targets != UNSCORED_TARGET
    loss = functional.cross_entropy(logits[scored].float(), targets[scored], reduction="none")
    return np.array([float(scored.sum()), -float(loss.sum(dtype=torch.float64))])


def _array(values: Tensor) -> np.ndarray:
    found: np.ndarray = values.cpu().numpy()
    return found
