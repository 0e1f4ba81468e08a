"""Numbers as integers modulo 2^64, in which sums of masks vanish exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsilo.errors import Problem

SUM_BITS = 62
"""A sum of all silos' integers stays below 2^62 in magnitude, which int64 holds."""


@dataclass(frozen=True)
class FixedPoint:
    """An encoding in which a sum over so many silos cannot overflow.

    :param silos: how many are added at most.
    :param bound: largest magnitude of a number that one of them adds, its weight included.
    """

    silos: int
    bound: float

    def __post_init__(self) -> None:
        if self.silos < 1 or not 0 < self.bound < math.inf or self.bits < 0:
            raise Problem(
                "out-of-range",
                f"fixed point: a sum of {self.silos} numbers of up to {self.bound:g} does not fit into 64 bits; "
                "use smaller weights or values",
            )

    @property
    def bits(self) -> int:
        """Binary digits after the point."""
        return SUM_BITS - math.ceil(math.log2(self.silos * self.bound))

    @property
    def error(self) -> float:
        """Most by which a decoded sum differs from the sum of the numbers: half a step each, and float64's rounding."""
        return self.silos * (math.ldexp(0.5, -self.bits) + self.bound * 2.0**-52)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """(n,) float64 -> (n,) uint64.

        :raises Problem: `out-of-range` for a number that is not finite or beyond the bound.
        """
        wrong = ~(np.abs(values) <= self.bound)  # NaN too
        if wrong.any():
            place = int(np.argmax(wrong))
            raise Problem(
                "out-of-range",
                f"fixed point: number {place} is {values[place]:g}, beyond the bound {self.bound:g}; nothing is sent",
            )
        return np.rint(np.ldexp(values.astype(np.float64), self.bits)).astype(np.int64).view(np.uint64)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """(n,) uint64, a sum modulo 2^64 -> (n,) float64."""
        return np.ldexp(total.view(np.int64).astype(np.float64), -self.bits)
