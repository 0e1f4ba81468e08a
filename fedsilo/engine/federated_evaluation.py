"""What the silos' scores of one model say together: exact where sums suffice, otherwise mean and spread.

Sums of counts give every metric of a confusion matrix exactly, and means by examples give accuracy and loss. The area
under a curve has no such sum: each silo computes its own, and the names of their mean and spread say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsilo.engine.fold import mean_metrics, personal_accuracy
from fedsilo.errors import MethodError
from fedsilo.learning.metrics.catalogue import ChosenMetrics, over_silos
from fedsilo.learning.metrics.confusion import Figures, count_figures
from fedsilo.methods.interface import CONFUSION, Updates

MAX_COUNT = 2**53
"""Largest count of a silo, up to which sums of them are exact in whatever adds them."""


def evaluation_record(updates: Updates, chosen: ChosenMetrics, classes: int) -> dict[str, Any]:
    """Fields of the round's record.

    :param classes: number of classes, where the job counts answers.
    :raises MethodError: when a silo's counts are none.
    """
    means = {name: value for name, value in mean_metrics(updates).items() if name not in chosen.by_silo}
    own, by_silo = personal_accuracy(updates)
    figures = Figures({**means, **own, **_over_silos(updates, chosen)})
    if chosen.confusion:
        figures = figures.and_those(count_figures(_confusion(updates, classes), chosen.confusion))
    return figures.record() | ({"personal": by_silo} if by_silo else {})


def _over_silos(updates: Updates, chosen: ChosenMetrics) -> dict[str, float]:
    """Mean and standard deviation over the silos that sent a metric, each silo weighing the same."""
    found: dict[str, float] = {}
    for metric in chosen.by_silo:
        values = [updates.metrics(silo)[metric] for silo in updates.silos if metric in updates.metrics(silo)]
        if values:
            mean, spread = over_silos(metric)
            found |= {mean: float(np.mean(values)), spread: float(np.std(values))}
    return found


def _confusion(updates: Updates, classes: int) -> np.ndarray:
    """(classes, classes), int64: the sum of the rows that the silos sent."""
    total = np.zeros((classes, classes), np.int64)
    for silo in updates.silos:
        for name, row in updates.tensors(silo, CONFUSION).items():
            if row.min() < 0 or row.max() > MAX_COUNT:
                worst = row.min() if row.min() < 0 else row.max()
                raise MethodError(
                    f"silo {silo}: {name}: {worst} is no number of examples; see its trainer's log"
                )
            total[int(name.rpartition("/")[2])] += row
    return total
