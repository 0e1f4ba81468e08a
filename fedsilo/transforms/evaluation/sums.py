"""What a silo sends of the sums that metrics follow from, where silos score the model, and how they are put together.

Blocks `confusion/<class>`: of classes and of pixels a row of the confusion matrix, of labels the counts of the four
outcomes. Block `calibration`: answers in bins of confidence. Blocks `targets/...`: statistics of targets and errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import LABEL_OUTCOMES
from fedsilo.learning.metrics.sums import BIN_ROWS, ScoreSums
from fedsilo.methods.components.feature_statistics import statistics_payloads
from fedsilo.methods.state import Tree
from fedsilo.methods.step import CALIBRATION, CONFUSION, TARGETS, Payload
from fedsilo.tasks.registry import answers_of, bind
from fedsilo.wire.combine import BlockSum

STATISTICS = tuple(field.name for field in fields(FeatureStatistics))
"""Names of the arrays, and of their blocks under `TARGETS`."""


def sums_payloads(chosen: ChosenMetrics, spec: FederatedJobSpec) -> Iterator[Payload]:
    """What a silo may send for the job's metrics."""
    if chosen.counts:
        columns = len(LABEL_OUTCOMES) if chosen.answers == "labels" else "classes"
        yield Payload(CONFUSION, CONFUSION, (columns,), "int64", per_class=True, combine=BlockSum())
    if chosen.bins:
        yield Payload(CONFUSION, CALIBRATION, (BIN_ROWS, 3), "float64", combine=BlockSum())
    if chosen.targets:
        yield from statistics_payloads(TARGETS, 2 * bind(spec.task, spec.data).outputs)


def metrics_that_send(kind: str, spec: FederatedJobSpec) -> list[str]:
    """The job's metrics for which silos send payloads of a kind; none where the aggregator scores the model."""
    if spec.evaluation.test_dataset is not None:
        return []
    answers = answers_of(spec.task, spec.data)
    return [
        name
        for name in spec.evaluation.metrics or ()
        if any(payload.kind == kind for payload in sums_payloads(ChosenMetrics.of((name,), answers), spec))
    ]


def sums_blocks(
    chosen: ChosenMetrics, sums: ScoreSums, rows: Iterable[int], per_class: int, per_feature: int
) -> Tree:
    """The sums as blocks.

    :param rows: classes whose row may leave.
    :param per_class: examples below which a bin is sent as one of none.
    :param per_feature: examples below which statistics of targets are sent as of none.
    """
    found: Tree = {}
    if sums.counts is not None:
        found = {f"{CONFUSION}/{label}": sums.counts[label] for label in rows}
    if sums.bins is not None:
        found[CALIBRATION] = np.where(sums.bins[:, :1] >= per_class, sums.bins, 0.0)
    if chosen.targets and sums.values is not None:
        enough = sums.values.count >= per_feature
        for name in STATISTICS:
            values = getattr(sums.values, name)
            found[TARGETS + name] = np.where(enough, values, np.zeros_like(values))
    return found


def statistics_in(blocks: Tree) -> FeatureStatistics:
    """The statistics of targets and errors among a silo's blocks."""
    return FeatureStatistics(*(blocks[TARGETS + name] for name in STATISTICS))
