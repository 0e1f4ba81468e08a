"""FedAvg and FedConcat at the scale of FedConcat's first table: CIFAR-10 among 40 silos, Dir(0.1), as far as time goes.

A cell that is not finished lies beside the record, and the next run goes on with it, at this commit or another.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.gpu.cases import Case, Figures, Setting, SkippedCase, UnfinishedCase
from benchmarks.tables import checkpoint, definition, layouts, results
from benchmarks.tables.cells import Cell, cells
from benchmarks.tables.definition import TableSelection
from benchmarks.tables.running import Place, run_all
from fedsilo.transforms.plan import JobPlan

TABLE, COLUMN, ROWS = "fedconcat-1", "cifar10-dir0.1", ("FedAvg", "FedConcat")
OPEN, RUNS = "open", "cells.jsonl"
COMMAND = "python -m benchmarks.gpu --only table"
LEAVE = 5.0
"""Seconds before the part's end in which a cell is put on file."""

SMALL_SETTINGS = {
    "silos": 4,
    "job": {
        "training": {"rounds": 3, "localEpochs": 1, "batchSize": 8},
        "participation": {"minSilos": 2, "roundDeadline": "10m"},
    },
}
SMALL_CONCAT = {
    "job": {
        "method": {"config": {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2}},
        "training": {"rounds": 4},
    }
}
"""What is smaller where the run is reduced."""


def cases(setting: Setting) -> Iterator[Case]:
    """One case per cell of the table; the time that is left is shared by those that follow."""
    ends = time.monotonic() + setting.ends - time.time() - LEAVE
    chosen = definition.choose(TABLE, "full", list(ROWS), [COLUMN])
    asked = cells(chosen, 1)
    for place, cell in enumerate(asked):
        name = f"{cell.row}, {chosen.table.columns[COLUMN].title}"
        yield Case(name, partial(continue_rounds, setting, chosen, cell, ends, len(asked) - place))


def continue_rounds(
    setting: Setting, chosen: TableSelection, cell: Cell, ends: float, sharing: int
) -> Figures | UnfinishedCase:
    """Rounds so far, and the accuracy after each.

    :param sharing: cells that share what is left of the time, with this one.
    :raises SkippedCase: the images are not there.
    """
    data, folder = setting.data, setting.into / OPEN
    if setting.size == "reduced":
        data, cell = made_up(setting.into / "data"), reduced_cell(cell)
    if not (data / "cifar10-jpeg.npz").exists() and not (data / "cifar-10-batches-py").exists():
        raise SkippedCase("no CIFAR-10 in the folder that --data names")
    of = JobPlan.of(cell.manifest(data, setting.device).job.spec).exchanges[-1].round
    now = time.monotonic()
    until = now + (ends - now) / sharing
    lines = setting.into / RUNS
    why = run_all(chosen, [cell], lines, Place(data, setting.device, 0, COMMAND, folder, until))
    if why:
        raise RuntimeError("; ".join(why.values()))
    finished = results.of(chosen, [cell], results.read(lines)).get(cell)
    if finished is not None:
        rounds, curve, seconds = of, finished.accuracies, finished.seconds
    else:
        kept = checkpoint.load(checkpoint.path_of(folder, cell.digest))
        history = () if kept is None else kept.progress.history
        curve = [line["metrics"]["accuracy"] for line in history if "accuracy" in line.get("metrics", {})]
        rounds, seconds = len(history), 0.0 if kept is None else kept.seconds
    figures: Figures = {
        "rounds": rounds,
        "of": of,
        "s, all runs": round(seconds, 1),
        "s/round": seconds / max(rounds, 1),
        "accuracy": curve[-1] if curve else 0.0,
        "curve": curve,
    }
    return figures if finished is not None else UnfinishedCase(figures)


def reduced_cell(cell: Cell) -> Cell:
    """The cell with so few silos, images and rounds that a CPU runs it in seconds."""
    settings = definition.merge_patch(cell.settings, SMALL_SETTINGS)
    if cell.row == "FedConcat":
        settings = definition.merge_patch(settings, SMALL_CONCAT)
    return dataclasses.replace(cell, settings=settings)


def made_up(folder: Path) -> Path:
    """A folder with a few random images in the layout of CIFAR-10's JPEG files."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (80, 32, 32, 3), dtype=np.uint8)
    layouts.write_jpeg(
        folder / "cifar10-jpeg.npz", dict.fromkeys(("train", "test"), (images, np.arange(80) % 10))
    )
    return folder
