"""From the accuracies of a run's rounds to the figure that a paper prints."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

PERSONAL = "personal"
"""The measure of the silos' own models, which comes of the job's report and not of its curve."""


def is_accuracy(measure: str) -> bool:
    """Whether the figure is a share, which papers print in percent, and not a number of rounds."""
    return not measure.startswith("rounds:")


def figure(
    measure: str, accuracies: Sequence[float], rounds: Sequence[int], by_class: Sequence[float] = ()
) -> float | None:
    """The figure of one run; None where there is none, as when a threshold was not reached.

    :param measure: `last`: the final model's; `last10`: mean of the last ten; `best5`: mean of the five best;
        `rounds:0.8`: the first round in which 0.8 was reached; `tail:3`: the final model's on the last three classes.
    :param accuracies: of the evaluated rounds, whose numbers are `rounds`.
    :param by_class: of the final model.
    """
    if measure.startswith("tail:"):
        tail = by_class[-int(measure.removeprefix("tail:")) :]
        return statistics.fmean(tail) if tail else None
    if measure.startswith("rounds:"):
        threshold = float(measure.removeprefix("rounds:"))
        return next(
            (float(n) for n, value in zip(rounds, accuracies, strict=True) if value >= threshold), None
        )
    if not accuracies:
        return None
    match measure:
        case "last":
            return accuracies[-1]
        case "last10":
            return statistics.fmean(accuracies[-10:])
        case "best5":
            return statistics.fmean(sorted(accuracies)[-5:])
        case _:
            raise ValueError(
                f"{measure!r} is not a measure; use last, last10, best5, rounds:<accuracy>, tail:<classes> or personal"
            )
