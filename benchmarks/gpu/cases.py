"""What a part of the run consists of: cases, each of which gives figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from typing_extensions import override

Size = Literal["full", "quick", "reduced"]
"""How much is measured: in eight minutes, in three, or in seconds on a CPU, only to see that everything runs."""

Figure = float | int | str | list[float]
Figures = Mapping[str, Figure]


@dataclass(frozen=True)
class UnfinishedCase:
    """Figures of a case that the next run goes on with."""

    figures: Figures


class SkippedCase(Exception):
    """A case does not apply to this machine; the text says why."""


@dataclass(frozen=True)
class Setting:
    """What every case of a run is given.

    :param device: `cuda` or `cpu`.
    :param into: folder of the record, where a case may leave what a later run goes on with.
    :param data: folder of the datasets.
    :param ends: when the part must be over, as `time.time` counts.
    """

    device: str
    size: Size
    into: Path
    data: Path
    ends: float

    def of(self, full: float, quick: float, reduced: float) -> float:
        """The number for this run's size."""
        return {"full": full, "quick": quick, "reduced": reduced}[self.size]


@dataclass(frozen=True)
class Case:
    """A named measurement of the GPU benchmark.

    :param run: gives its figures.
    """

    name: str
    run: Callable[[], Figures | UnfinishedCase]


@dataclass(frozen=True)
class Goal:
    """What a figure of this name should be.

    :param least: at least this.
    :param most: at most this.
    """

    figure: str
    least: float | None = None
    most: float | None = None

    def holds(self, value: Figure) -> bool:
        """Whether a figure is within."""
        assert isinstance(value, float | int), f"{self.figure}: a goal is of a number"
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @override
    def __str__(self) -> str:
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", self.least), ("at most", self.most))
            if bound is not None
        ]
        return f"{self.figure}: {' and '.join(bounds)}"


@dataclass(frozen=True)
class Part:
    """Cases that belong together, with a time limit of their own.

    :param module: whose `cases(setting)` gives them.
    :param limits: seconds by size; what is not finished by then costs this part alone.
    """

    name: str
    title: str
    module: str
    limits: Mapping[Size, float]
    goals: tuple[Goal, ...] = ()

    def missed_goals(self, figures: Figures) -> list[Goal]:
        """The goals that these figures do not reach."""
        return [
            goal for goal in self.goals if goal.figure in figures and not goal.holds(figures[goal.figure])
        ]
