"""Learning curves as a picture: a panel per column, a line per method, the mean over seeds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.tables.definition import TableSelection
from benchmarks.tables.rendering import FoundRuns
from benchmarks.tables.results import Run

PANELS = 2
"""Panels of a picture that stand in a row."""


def draw(chosen: TableSelection, found: FoundRuns, path: Path) -> bool:
    """Draw learning curves as a PNG, and return whether matplotlib was there to do it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no curves: pip install 'fedsilo[bench]' brings matplotlib", file=sys.stderr)
        return False
    columns = panels(chosen, found)
    rows = -(-len(columns) // PANELS)
    figure = Figure(figsize=(6.5 * min(PANELS, len(columns)), 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for position, column in enumerate(columns, start=1):
        panel = figure.add_subplot(rows, min(PANELS, len(columns)), position)
        panel.set_title(chosen.table.columns[column].title)
        panel.set_xlabel("part of the job's rounds")
        panel.set_ylabel("test accuracy in percent")
        panel.grid(alpha=0.3)
        for number, row in enumerate(chosen.rows):
            runs = [
                run
                for cell, run in found.items()
                if (cell.row, cell.column) == (row, column) and run.rounds  # none without a common model
            ]
            if runs:
                style = ("-", "--", ":")[number // 10 % 3]
                panel.plot(*mean_curve(runs), style, label=row, linewidth=1.4, color=f"C{number % 10}")
        panel.legend(fontsize="x-small", ncols=2)
    figure.savefig(path, dpi=80, metadata={"Software": None})
    return True


def panels(chosen: TableSelection, found: FoundRuns) -> list[str]:
    """Columns that have runs of their own; one that only measures those of another has the same curves."""
    columns: dict[frozenset[str], str] = {}
    for column in chosen.columns:
        if runs := frozenset(run.digest for cell, run in found.items() if cell.column == column):
            columns.setdefault(runs, column)
    return list(columns.values())


def mean_curve(runs: Iterable[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Part of the rounds from 0 to 1, since methods have different numbers of them, and mean accuracy in percent.

    Of runs that were evaluated in different rounds, those rounds count that all have.
    """
    runs = list(runs)
    common = sorted(set.intersection(*(set(run.rounds) for run in runs)))
    values = [[dict(zip(run.rounds, run.accuracies, strict=True))[n] for n in common] for run in runs]
    return np.array(common) / max(common), 100 * np.mean(values, axis=0)
