"""What the silos' scores of one model say together: exact where sums suffice, otherwise mean and spread.

Sums of counts give every metric of answers exactly, statistics of targets and errors those of numbers, and means by
examples the learning task's own and perplexity. The area under a curve has no such sum: each silo computes its own, and
the names of their mean and spread say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsilo.data.statistics import FeatureStatistics
from fedsilo.errors import MethodError
from fedsilo.learning.metrics.catalogue import LOSS, RMSE, over_silos
from fedsilo.learning.metrics.chosen import LOG_LIKELIHOOD, TOKENS, ChosenMetrics
from fedsilo.learning.metrics.confusion import LABEL_OUTCOMES, EvaluationMetrics
from fedsilo.learning.metrics.sums import BIN_ROWS, ScoreSums
from fedsilo.methods.components.feature_statistics import KIND
from fedsilo.methods.state import Tree
from fedsilo.methods.step import CALIBRATION, CONFUSION, NAMED_SCORES, TARGETS
from fedsilo.transforms.evaluation.sums import statistics_in
from fedsilo.updates.figures import mean_metrics, personal_accuracy
from fedsilo.updates.round_updates import RoundUpdates

MAX_COUNT = 2**53
"""Largest count of a silo, up to which sums of them are exact in whatever adds them."""


def evaluation_record(
    updates: RoundUpdates, chosen: ChosenMetrics, classes: int, asked: Sequence[str] = ()
) -> dict[str, Any]:
    """Fields of the round's record.

    :param classes: number of classes, where the job counts answers.
    :param asked: silos that were to score the job's model; none where they score their own only.
    :raises MethodError: when a silo's sums are none.
    """
    own, by_silo = personal_accuracy(updates)
    figures = EvaluationMetrics(own).and_those(_figures(updates, chosen, classes))
    figures = figures.and_those(EvaluationMetrics(_over_silos(updates, chosen)))
    scores = {"scores": _scores(updates, chosen, classes, asked)} if asked else {}
    return figures.record() | ({"personal": by_silo} if by_silo else {}) | scores


def _figures(updates: RoundUpdates, chosen: ChosenMetrics, classes: int) -> EvaluationMetrics:
    """What follows exactly from means and sums of the updates."""
    means = mean_metrics(updates)
    hidden = {*chosen.by_silo, *chosen.intermediate_metrics}
    figures = EvaluationMetrics({name: value for name, value in means.items() if name not in hidden})
    figures = figures.and_those(_sums(updates, chosen, classes, means).figures(chosen))
    if RMSE in chosen.sums and LOSS in means:
        figures = figures.and_those(EvaluationMetrics({RMSE: math.sqrt(max(means[LOSS], 0.0))}))
    return figures


def _scores(
    updates: RoundUpdates, chosen: ChosenMetrics, classes: int, asked: Sequence[str]
) -> dict[str, Any]:
    """What the pooled scores are of, and each silo's own if every one that scored permits it: beside the others, the
    pooled score would give away the one that does not.
    """
    examples = sum(map(updates.samples, updates.silos))
    if updates.together:
        return {"examples": examples, "scored": updates.count, "asked": len(asked)}
    scored = [silo for silo in updates.silos if updates.samples(silo)]
    withheld = [silo for silo in scored if NAMED_SCORES not in updates.metrics(silo)]
    found: dict[str, Any] = {
        "examples": examples,
        "scored": len(scored),
        "asked": len(asked),
        "without": [silo for silo in asked if silo not in scored],
        "withheld": withheld,
    }
    if not withheld:
        found["bySilo"] = [_own_scores(updates.only(silo), chosen, classes) for silo in scored]
    return found


def _own_scores(update: RoundUpdates, chosen: ChosenMetrics, classes: int) -> dict[str, Any]:
    """One silo's scores, by the names that they have in its own evaluation."""
    (silo,) = update.silos
    own = {name: value for name, value in update.metrics(silo).items() if name in chosen.by_silo}
    metrics = {**_figures(update, chosen, classes).metrics, **own}
    return {"name": silo, "examples": update.samples(silo), "metrics": metrics}


def _over_silos(updates: RoundUpdates, chosen: ChosenMetrics) -> dict[str, float]:
    """Mean and standard deviation over the silos that sent a metric, each silo weighing the same."""
    found: dict[str, float] = {}
    for metric in chosen.by_silo:
        if (stated := updates.over_silos(metric)) is not None:
            mean, spread = over_silos(metric)
            found |= {mean: stated.mean, spread: stated.spread}
    return found


def _sums(
    updates: RoundUpdates, chosen: ChosenMetrics, classes: int, means: Mapping[str, float]
) -> ScoreSums:
    """The sums over all silos."""
    columns = len(LABEL_OUTCOMES) if chosen.answers == "labels" else classes
    counts, bins = np.zeros((classes, columns), np.int64), np.zeros((BIN_ROWS, 3))
    values: FeatureStatistics | None = None
    for silo in updates.silos:
        if chosen.counts or chosen.bins:
            blocks = updates.tensors(silo, CONFUSION)
            bins += _bins(silo, blocks.pop(CALIBRATION, np.zeros((BIN_ROWS, 3))), updates.samples(silo))
            _require_counts(silo, blocks, updates.samples(silo), chosen, updates.together)
            for name, row in blocks.items():
                counts[int(name.rpartition("/")[2])] += row
        if chosen.targets:
            found = _statistics(silo, updates.tensors(silo, KIND))
            values = found if values is None else values.merge(found)
    tokens = None
    if TOKENS in means and LOG_LIKELIHOOD in means:
        # Means by example: their ratio is that of the sums.
        tokens = np.array([means[TOKENS], means[LOG_LIKELIHOOD]])
    return ScoreSums(counts if chosen.counts else None, bins if chosen.bins else None, values, tokens)


def _require_counts(silo: str, rows: Tree, samples: int, chosen: ChosenMetrics, summed: bool) -> None:
    """Check that counts are such, and of as many examples as the silo says that it has scored.

    A row of a label has all of them, and the rows of classes have them together; pixels have a count of their own.

    :param summed: whether they are of several silos, of which some may have left a label out.
    """
    for name, row in rows.items():
        if row.min() < 0 or row.max() > MAX_COUNT:
            worst = row.min() if row.min() < 0 else row.max()
            raise MethodError(f"silo {silo}: {name}: {worst} is no number of examples; see its trainer's log")
    totals = {name: sum(row.tolist()) for name, row in rows.items()}
    if chosen.answers == "class" and chosen.counts:
        totals = {f"{CONFUSION}/*": sum(totals.values())}
    for name, total in totals.items():
        left_out = summed and chosen.answers == "labels" and total < samples
        if chosen.answers in ("class", "labels") and total != samples and not left_out:
            raise MethodError(
                f"silo {silo}: {name}: counts {total} examples, and the silo says {samples}; see its trainer's log"
            )


def _bins(silo: str, bins: np.ndarray, samples: int) -> np.ndarray:
    """The silo's bins of confidence, where they can be such.

    :raises MethodError: naming the silo.
    """
    examples, confidence, correct = bins.T
    within = (bins >= 0).all() and (confidence <= examples * (1 + 1e-6)).all() and (correct <= examples).all()
    if not within or examples.sum() > samples:
        raise MethodError(
            f"silo {silo}: {CALIBRATION}: the bins are not those of {samples} examples; see its trainer's log"
        )
    return bins


def _statistics(silo: str, blocks: Tree) -> FeatureStatistics:
    for name in (TARGETS + "count", TARGETS + "missing", TARGETS + "m2"):
        if (blocks[name] < 0).any():
            raise MethodError(
                f"silo {silo}: {name}: {blocks[name].min():g} is below 0; see its trainer's log"
            )
    return statistics_in(blocks)
