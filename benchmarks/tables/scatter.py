"""Accuracy against bytes as a picture: a point per method, of which those are named that no other beats in both."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tables.cells import Cell
from benchmarks.tables.definition import TableSelection
from benchmarks.tables.rendering import Figure as Result
from benchmarks.tables.rendering import Place, figures
from benchmarks.tables.results import Run

BASELINE = "FedAvg"
"""The method that is always named, with which the others are compared."""

WORST_POINTS = 2
"""Points at the lower end that are named."""

GAP = 4.2
"""Least distance between the heights of two names, in percent of the axis."""


@dataclass(frozen=True)
class Point:
    """A method's point in the picture of accuracy over traffic.

    :param moved: megabytes of a silo in the whole job.
    :param accuracy: in percent, and its standard deviation.
    """

    name: str
    moved: float
    accuracy: float
    spread: float


def draw(chosen: TableSelection, found: Mapping[Cell, Run], path: Path) -> bool:
    """Write a PNG of a wide table with columns `accuracy` and `moved`; whether matplotlib was there to do it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'fedsilo[bench]' brings matplotlib", file=sys.stderr)
        return False
    ours = figures(chosen, found)
    points = points_of(chosen, ours)
    if not points:
        return False
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.add_subplot()
    best = front(points)
    others = [point for point in points if point not in best]
    for group, color in ((others, "0.6"), (best, "C0")):
        panel.errorbar(
            [point.moved for point in group],
            [point.accuracy for point in group],
            [point.spread for point in group],
            fmt="o",
            color=color,
            ecolor="0.85",
            elinewidth=1,
            markersize=6,
        )
    panel.plot([point.moved for point in best], [point.accuracy for point in best], "C0:", linewidth=1)
    for row in chosen.rows:
        if chosen.paper.rows[row].pooled and (result := ours.get((row, "accuracy"))) is not None:
            panel.axhline(result.mean, color="0.4", linestyle="--", linewidth=1)
            panel.annotate(row, (0, result.mean), (4, 3), textcoords="offset points", color="0.4", fontsize=9)
    panel.set_xlim(0, 1.25 * max(point.moved for point in points) or 1)
    low, high = panel.get_ylim()
    heights = spaced_heights([point.accuracy for point in named_points(points)], GAP / 100 * (high - low))
    for point, height in zip(named_points(points), heights, strict=True):
        _name(panel, point, height, 0.02 * panel.get_xlim()[1], "C0" if point in best else "0.3")
    panel.set_xlabel("MB that a silo sends and fetches in all rounds")
    panel.set_ylabel("test accuracy of the common model in percent")
    panel.set_title("Each method's accuracy against its bytes; blue: no other is better at as few bytes")
    panel.grid(alpha=0.3)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return True


def _name(panel: Any, point: Point, height: float, aside: float, color: str) -> None:
    """The method's name beside its point, joined to it by a line where it had to go up or down."""
    panel.annotate(
        point.name,
        (point.moved, point.accuracy),
        (point.moved + aside, height),
        va="center",
        fontsize=9,
        color=color,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.6, "shrinkB": 4},
    )


def points_of(chosen: TableSelection, ours: Mapping[Place, Result]) -> list[Point]:
    """The methods that have both figures, by bytes."""
    found = []
    for row in chosen.rows:
        accuracy, moved = ours.get((row, "accuracy")), ours.get((row, "moved"))
        if accuracy is not None and moved is not None and accuracy.values and moved.values:
            found.append(Point(row, moved.mean, accuracy.mean, accuracy.spread))
    return sorted(found, key=lambda point: (point.moved, -point.accuracy))


def front(points: Sequence[Point]) -> list[Point]:
    """Points of which no other has higher accuracy for as few bytes; the points are sorted by bytes."""
    found: list[Point] = []
    for point in points:
        if not found or point.accuracy > found[-1].accuracy:
            found.append(point)
    return found


def named_points(points: Sequence[Point]) -> list[Point]:
    """The front, the baseline, those with most bytes and those at the lower end, from below."""
    chosen = [*front(points), *sorted(points, key=lambda point: point.accuracy)[:WORST_POINTS], *points[-1:]]
    chosen += [point for point in points if point.name == BASELINE]
    return sorted(dict.fromkeys(chosen), key=lambda point: point.accuracy)


def spaced_heights(heights: Sequence[float], apart: float) -> list[float]:
    """Ascending heights, moved as little as a pass upwards needs so that they lie so far apart."""
    found: list[float] = []
    for height in heights:
        found.append(height if not found else max(height, found[-1] + apart))
    return found
