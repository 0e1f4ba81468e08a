"""What the records of completed rounds say to people: learning curves and receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.methods.interface import EVALUATE

POINTS = 100
"""Most points of a curve: as many as a screen shows, and few enough for a job's status."""

Record = Mapping[str, Any]
"""A line of the history."""


def curve(history: Sequence[Record]) -> list[dict[str, Any]]:
    """Scores and training figures by round, thinned to at most `POINTS` points.

    Of a long history every 2nd, 4th, 8th ... round is kept, and always the last, so that a point stays where it is
    while others come. A kept round has the scores of the last evaluation since the one kept before.
    """
    stride = 1
    while len(history) >= POINTS * stride:
        stride *= 2
    points = []
    metrics: Mapping[str, float] = {}
    for position, line in enumerate(history, start=1):
        metrics = line.get("metrics", metrics)
        if position % stride == 0 or position == len(history):
            points.append(
                {"round": line["round"], "metrics": dict(metrics), "training": dict(line["training"])}
            )
            metrics = {}
    return points


def receipts(line: Record) -> list[tuple[str, str, str]]:
    """Name of the silo, step of the method's phase or `evaluate`, and digest, of each update of a round."""
    found = []
    for task, digest in line["updates"].items():
        for phase in (line["phase"], EVALUATE):
            prefix = f"r{line['round']:05d}-{phase}-"
            if task.startswith(prefix):
                found.append((task.removeprefix(prefix), phase, digest))
                break
    return found
