"""Samples and metrics of an update in the vector that is summed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedsilo.secure_aggregation.parts import (
    CrossSiloStatistics,
    PlainUpdate,
    SumResult,
    VectorPart,
    counts_point,
    put,
)
from fedsilo.secure_aggregation.plausibility import taken_count
from fedsilo.secure_aggregation.wide import SUMMAND_BOUND, exact_fraction, put_wide, taken_wide


@dataclass(frozen=True)
class SampleTotal(VectorPart):
    """The number of samples n, of which the sum gives the total."""

    silos: int
    size = 1

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        put(numbers, "samples", counts_point(self.silos), np.array([float(update.samples)]))

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        summed.samples = int(taken_count(numbers, "samples", counts_point(self.silos), summed.silos))


@dataclass(frozen=True)
class SummedMetric(VectorPart):
    """A metric m as numbers of the vector: n, then n m, or zeros where it is not stated or too large for the sum."""

    silos: int
    name: str
    size = 3

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        value = update.metrics.get(self.name)
        if (
            value is not None
            and abs(added := update.samples * exact_fraction(self.name, value)) <= SUMMAND_BOUND
        ):
            put(numbers, self.name, counts_point(self.silos), np.array([float(update.samples)]))
            put_wide(numbers[1:], self.silos, self.name, [added])

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        if count := int(taken_count(numbers, self.name, counts_point(self.silos), summed.silos)):
            (total,) = taken_wide(numbers[1:], self.silos, self.name, summed.silos)
            summed.metrics[self.name] = float(total / count)


@dataclass(frozen=True)
class UnweightedMetric(VectorPart):
    """A metric m in which silos count alike: 1, m and m^2, or zeros where it is not stated or too large for the sum."""

    silos: int
    name: str
    size = 5

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        value = update.metrics.get(self.name)
        if value is not None and (square := exact_fraction(self.name, value) ** 2) <= SUMMAND_BOUND:
            put(numbers, self.name, counts_point(self.silos), np.ones(1))
            put_wide(numbers[1:], self.silos, self.name, [exact_fraction(self.name, value), square])

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        if count := int(taken_count(numbers, self.name, counts_point(self.silos), summed.silos)):
            totals = taken_wide(numbers[1:], self.silos, self.name, summed.silos)
            mean, square = (total / count for total in totals)
            spread = math.sqrt(max(float(square - mean * mean), 0.0))
            summed.alike[self.name] = CrossSiloStatistics(float(mean), spread, count)
