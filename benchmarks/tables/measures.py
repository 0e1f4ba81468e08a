"""From the accuracies of a run's rounds to the figure that a paper prints."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PERSONAL_MEASURE = "personal"
"""The measure of the silos' own models, which comes of the job's report and not of its curve: of all that have one."""

PERSONAL_DRAWN = "personal-drawn"
"""The measure of the own models of the silos that took part in the last round of training, as MAP's tables print it."""

LOCAL = "local"
"""The measure of the models that silos send, before they are averaged, on the test set."""


@dataclass(frozen=True)
class Unit:
    """What a figure is printed in.

    :param factor: by which a run's figure is multiplied.
    """

    name: str
    factor: float = 1
    digits: int = 1


PERCENT = Unit("accuracy in percent", 100)

COSTS = {
    "up": Unit("kB that a silo sends in a round", 1e-3),
    "down": Unit("kB that a silo fetches in a round", 1e-3),
    "moved": Unit("MB that a silo sends and fetches in all rounds", 1e-6, 2),
    "seconds": Unit("CPU seconds of a round", digits=2),
}
"""Measures of what a run has cost: bytes of tensors, means over silos and rounds; CPU time with all in one process."""


def unit(measure: str) -> Unit:
    """Unit of a measure's figures."""
    if measure.startswith("rounds:"):
        return Unit("rounds")
    return COSTS.get(measure, PERCENT)


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
                f"{measure!r} is not a measure; use last, last10, best5, rounds:<accuracy>, "
                f"tail:<classes>, personal, personal-drawn, local, {', '.join(COSTS)}"
            )


def personal_drawn(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean accuracy of the own models of the silos that the last round drew; None where there is none by silo."""
    last = history[-1] if history else {}
    accuracies = last.get("personal", {})
    drawn = [accuracies[silo] for silo in last.get("silos", {}) if silo in accuracies]
    return statistics.fmean(drawn) if drawn else None
