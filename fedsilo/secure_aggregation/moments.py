"""Means and spreads of features in a sum, in as many digits as features of any size need.

Silos state count c, mean m and sum of squared deviations s of each feature. What can be added are c, c m and s + c m^2,
in which a large mean would cancel a small spread; so they go in exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from typing_extensions import override

from fedsilo.secure_aggregation.parts import PlainUpdate, SumResult, VectorPart, count_of
from fedsilo.secure_aggregation.wide import UNIT, exact_fraction, put_wide, taken_wide
from fedsilo.wire import ExpectedBlock


@dataclass(frozen=True)
class FeatureMean(VectorPart):
    """Means m of some features, which a tensor of counts c weighs: c m."""

    silos: int
    block: ExpectedBlock

    @property
    @override
    def size(self) -> int:
        return 2 * self.block.spec.size

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        put_wide(numbers, self.silos, f"tensor {self.block.name}", _weighted_means(self.block, update))

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        """Divide the sums by the counts, which an earlier part has taken, and add the means to `summed`."""
        counts = summed.tensors[_count_of(self.block)].reshape(-1).tolist()
        totals = taken_wide(numbers, self.silos, f"tensor {self.block.name}", summed.silos)
        means = [float(total / max(count, 1)) for total, count in zip(totals, counts, strict=True)]
        summed.tensors[self.block.name] = np.array(means).reshape(self.block.shape)


@dataclass(frozen=True)
class Deviations(VectorPart):
    """Sums of squared deviations s from these means: c m and s + c m^2.

    :param means: the block of the means.
    """

    silos: int
    block: ExpectedBlock
    means: ExpectedBlock

    @property
    @override
    def size(self) -> int:
        return 4 * self.block.spec.size

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        half, name = self.size // 2, f"tensor {self.block.name}"
        put_wide(numbers[:half], self.silos, name, _weighted_means(self.means, update))
        put_wide(numbers[half:], self.silos, name, _squares(self.block, self.means, update))

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        """Add the sums of squared deviations to `summed`; what rounding can account for is no deviation, so that a
        constant feature has none.
        """
        half, counts = self.size // 2, summed.tensors[_count_of(self.means)].reshape(-1).tolist()
        added, squared = (
            taken_wide(part, self.silos, f"tensor {self.block.name}", summed.silos)
            for part in (numbers[:half], numbers[half:])
        )
        found = []
        for total, squares, count in zip(added, squared, counts, strict=True):
            mean = total / max(count, 1)
            deviation, rounding = squares - total * mean, UNIT * self.silos * (1 + abs(mean))
            found.append(float(deviation) if deviation > rounding else 0.0)
        summed.tensors[self.block.name] = np.array(found).reshape(self.block.shape)


def _count_of(means: ExpectedBlock) -> str:
    count = count_of(means)
    assert count is not None, "without counts it is an average"
    return count


def _weighted_means(means: ExpectedBlock, update: PlainUpdate) -> list[Fraction]:
    return [count * mean for count, mean in _counted_means(means, update)]


def _squares(block: ExpectedBlock, means: ExpectedBlock, update: PlainUpdate) -> list[Fraction]:
    deviations = update.tensor(block.name).reshape(-1).tolist()
    return [
        exact_fraction(f"tensor {block.name}", own) + count * mean * mean
        for own, (count, mean) in zip(deviations, _counted_means(means, update), strict=True)
    ]


def _counted_means(means: ExpectedBlock, update: PlainUpdate) -> list[tuple[int, Fraction]]:
    counts, values = (update.tensor(name).reshape(-1).tolist() for name in (_count_of(means), means.name))
    return [
        (count, exact_fraction(f"tensor {means.name}", value))
        for count, value in zip(counts, values, strict=True)
    ]
