"""Numbers of any ordinary size in a sum: exact multiples of 2^-44, in two integers each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from fedsilo.errors import Problem
from fedsilo.secure_aggregation.fixed_point import SUM_BITS
from fedsilo.secure_aggregation.plausibility import implausible_sum_problem

UNIT = Fraction(1, 1 << 44)

SUMMAND_BOUND = 1 << 60
"""Largest magnitude of a summand."""


def exact_fraction(name: str, value: float) -> Fraction:
    """A number without any loss.

    :raises Problem: `out-of-range` where it is none.
    """
    if not math.isfinite(value):
        raise Problem("out-of-range", f"{name}: is {value:g}; nothing is sent")
    return Fraction(value)


def put_wide(numbers: np.ndarray, silos: int, name: str, values: Sequence[Fraction]) -> None:
    """Each value as multiples of the unit in two numbers: the low digits, and how often they overflow.

    :param silos: that are added at most.
    :raises Problem: `out-of-range`.
    """
    digits = _digits(silos)
    for place, value in enumerate(values):
        if abs(value) > SUMMAND_BOUND:
            raise Problem(
                "out-of-range",
                f"{name}: sum {place} is beyond the bound {SUMMAND_BOUND:g}, so nothing is sent; write such numbers in "
                "a larger unit, or less a constant, in all silos",
            )
        high, low = divmod(round(value / UNIT), 1 << digits)
        numbers[2 * place] = low
        numbers[2 * place + 1] = np.int64(high).view(np.uint64)


def taken_wide(numbers: np.ndarray, silos: int, name: str, summed: int) -> list[Fraction]:
    """Sums of such values.

    :param summed: silos whose values are in them.
    :raises Problem: `out-of-range` for a sum that so many silos cannot have.
    """
    digits, most = _digits(silos), summed * SUMMAND_BOUND
    lows, highs = numbers[0::2].tolist(), numbers[1::2].view(np.int64).tolist()
    values = [UNIT * ((high << digits) + low) for low, high in zip(lows, highs, strict=True)]
    for value, low in zip(values, lows, strict=True):
        if abs(value) > most or low > summed << digits:
            raise implausible_sum_problem(name, float(value), summed, -most, most)
    return values


def _digits(silos: int) -> int:
    """Binary digits of the low number, so that a sum of so many stays below 2^62."""
    return SUM_BITS - math.ceil(math.log2(silos))
