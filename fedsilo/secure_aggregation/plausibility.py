"""Sums that some silos can have: of numbers within their bounds, any other sum is of masks that were left in it."""

from __future__ import annotations

import numpy as np

from fedsilo.errors import Problem
from fedsilo.secure_aggregation.fixed_point import FixedPoint


def plausible_sums(numbers: np.ndarray, what: str, point: FixedPoint, silos: int) -> np.ndarray:
    """The sums of some silos' values.

    :param silos: whose values are in them.
    :raises Problem: `out-of-range`, which says of what: so many silos cannot have such a sum, so one of them has not
        masked its update as the protocol says.
    """
    values, most = point.decode(numbers), silos * point.bound
    wrong = np.abs(values) > most
    if wrong.any():
        raise implausible_sum_problem(what, values[int(np.argmax(wrong))], silos, -most, most)
    return values


def taken_count(numbers: np.ndarray, what: str, point: FixedPoint, silos: int) -> float:
    """The sum of some silos' counts or weights, the first of these numbers; errors as `taken`, also below 0."""
    count = float(plausible_sums(numbers[:1], what, point, silos)[0])
    if count < 0:
        raise implausible_sum_problem(what, count, silos, 0.0, silos * point.bound)
    return count


def implausible_sum_problem(what: str, value: float, silos: int, least: float, most: float) -> Problem:
    """The error of a sum that some silos cannot have."""
    return Problem(
        "out-of-range",
        f"secure aggregation: in the sum over {silos} silos, {what} is {value:g}; must be from {least:g} to {most:g}: "
        "a silo has not masked its update as the protocol says; nothing of this sum is used; run the job anew, without "
        "a silo that does so again",
    )
