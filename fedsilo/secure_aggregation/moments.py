"""Means and spreads of features in a sum, in as many digits as features of any size need.

Silos state count c, mean m and sum of squared deviations s of each feature. What can be added are c, c m and s + c m^2,
in which a large mean would cancel a small spread; so they go in exactly, to 2^-44, in two numbers each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedsilo.errors import Problem
from fedsilo.secure_aggregation.fixed_point import SUM_BITS
from fedsilo.secure_aggregation.parts import PlainUpdate, Summed
from fedsilo.wire import ExpectedBlock

UNIT = Fraction(1, 1 << 44)

BOUND = 1 << 60
"""Largest magnitude of c m and of s + c m^2."""


@dataclass(frozen=True)
class FeatureMeans:
    """Means m of some features, which a tensor of counts c weighs: c m."""

    silos: int
    block: ExpectedBlock

    @property
    def size(self) -> int:
        """See `Part`."""
        return 2 * self.block.spec.size

    def put(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        """See `Part`."""
        put_wide(numbers, self.silos, self.block.name, _added(self.block, update))

    def take(self, numbers: np.ndarray, summed: Summed) -> None:
        """See `Part`; the counts come before."""
        assert self.block.counted is not None, "without counts it is an average"
        counts = summed.tensors[self.block.counted].reshape(-1).tolist()
        totals = taken_wide(numbers, self.silos)
        means = [float(UNIT * total / max(count, 1)) for total, count in zip(totals, counts, strict=True)]
        summed.tensors[self.block.name] = np.array(means).reshape(self.block.shape)


@dataclass(frozen=True)
class Deviations:
    """Sums of squared deviations s from these means: c m and s + c m^2.

    :param means: the block of the means.
    """

    silos: int
    block: ExpectedBlock
    means: ExpectedBlock

    @property
    def size(self) -> int:
        """See `Part`."""
        return 4 * self.block.spec.size

    def put(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        """See `Part`."""
        half = self.size // 2
        put_wide(numbers[:half], self.silos, self.block.name, _added(self.means, update))
        put_wide(numbers[half:], self.silos, self.block.name, _squares(self.block, self.means, update))

    def take(self, numbers: np.ndarray, summed: Summed) -> None:
        """See `Part`; what rounding can account for is no deviation, so that a constant feature has none."""
        assert self.means.counted is not None, "without counts it is an average"
        half, counts = self.size // 2, summed.tensors[self.means.counted].reshape(-1).tolist()
        found = []
        for total, squares, count in zip(
            taken_wide(numbers[:half], self.silos),
            taken_wide(numbers[half:], self.silos),
            counts,
            strict=True,
        ):
            some = max(count, 1)
            deviation = squares - UNIT * total * total / some
            rounding = self.silos * (1 + abs(UNIT * total / some))
            found.append(float(UNIT * deviation) if deviation > rounding else 0.0)
        summed.tensors[self.block.name] = np.array(found).reshape(self.block.shape)


def put_wide(numbers: np.ndarray, silos: int, name: str, values: list[Fraction]) -> None:
    """Each value as multiples of the unit in two numbers: the low digits, and how often they overflow.

    :raises Problem: `out-of-range`.
    """
    digits = _digits(silos)
    for place, value in enumerate(values):
        if abs(value) > BOUND:
            raise Problem(
                "out-of-range",
                f"tensor {name}: sum {place} is {float(value):g}, beyond the bound {BOUND:g}; nothing is sent",
            )
        high, low = divmod(round(value / UNIT), 1 << digits)
        numbers[2 * place] = low
        numbers[2 * place + 1] = np.int64(high).view(np.uint64)


def taken_wide(numbers: np.ndarray, silos: int) -> list[int]:
    """Sums of such values, in multiples of the unit."""
    digits = _digits(silos)
    lows, highs = numbers[0::2].tolist(), numbers[1::2].view(np.int64).tolist()
    return [(high << digits) + low for low, high in zip(lows, highs, strict=True)]


def _digits(silos: int) -> int:
    """Binary digits of the low number, so that a sum of so many stays below 2^62."""
    return SUM_BITS - math.ceil(math.log2(silos))


def _added(means: ExpectedBlock, update: PlainUpdate) -> list[Fraction]:
    return [count * mean for count, mean in _counted(means, update)]


def _squares(block: ExpectedBlock, means: ExpectedBlock, update: PlainUpdate) -> list[Fraction]:
    deviations = update.tensor(block.name).reshape(-1).tolist()
    return [
        _exact(block, own) + count * mean * mean
        for own, (count, mean) in zip(deviations, _counted(means, update), strict=True)
    ]


def _counted(means: ExpectedBlock, update: PlainUpdate) -> list[tuple[int, Fraction]]:
    assert means.counted is not None, "without counts it is an average"
    counts, values = (update.tensor(name).reshape(-1).tolist() for name in (means.counted, means.name))
    return [(count, _exact(means, value)) for count, value in zip(counts, values, strict=True)]


def _exact(block: ExpectedBlock, value: float) -> Fraction:
    if not math.isfinite(value):
        raise Problem("out-of-range", f"tensor {block.name}: is {value:g}; nothing is sent")
    return Fraction(value)
