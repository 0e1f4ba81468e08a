"""Runs the cells of a table one after the other, in this process, by the simulation, which is what jobs run on.

The open cell is kept on file from time to time, and where the run is stopped: what comes next goes on from there.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.tables import checkpoint, reference, results
from benchmarks.tables.cells import Cell
from benchmarks.tables.definition import TableSelection
from benchmarks.tables.measures import personal_drawn
from benchmarks.tables.results import Run
from benchmarks.traffic import Traffic
from fedsilo.errors import FedsiloError


@dataclass(frozen=True)
class Place:
    """Where cells are run.

    :param data: folder of the datasets.
    :param device: cpu or cuda.
    :param workers: processes that share the silos' work.
    :param command: for the record.
    :param open: folder of the cells that are not finished; None to keep none.
    :param until: when to stop, as `time.monotonic` counts; None: when all is finished.
    """

    data: Path
    device: str
    workers: int
    command: str
    open: Path | None = None
    until: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether its time has passed."""
        return self.until is not None and time.monotonic() >= self.until


class TimeIsUp(Exception):
    """The time of the place has passed; the open cell is on file."""


class Progress:
    """Prints on standard error how far a run is and how long the rest takes.

    :param before: earlier runs, whose times predict how long a cell takes.
    """

    def __init__(self, cells: Sequence[Cell], before: Iterable[Run]) -> None:
        self._waiting = list(cells)
        self._total = len(cells)
        self._seconds = [(run.row, run.column, run.seconds) for run in before]
        self._live = sys.stderr.isatty()

    def round(self, cell: Cell, done: int, rounds: int) -> None:
        """A round of the open cell is complete."""
        if self._live:
            place = f"{cell.row}, {cell.column}, seed {cell.seed}"
            text = f"{self._position()} {place}: round {done}/{rounds}, {self.remaining_time()}"
            print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)

    def finish_cell(self, cell: Cell, run: Run | None, result: str = "") -> None:
        """A cell is over."""
        at = self._position()
        self._waiting.remove(cell)
        if run is not None:
            self._seconds.append((run.row, run.column, run.seconds))
            figures = [run.accuracies[-1]] if run.accuracies else [run.personal]
            found = ", ".join(f"{figure:.1%}" for figure in figures if figure is not None)
            result = f"{found or 'no accuracy'} in {run.seconds:.0f} s"
        start = "\r\x1b[2K" if self._live else ""
        text = f"{start}{at} {cell.row}, {cell.column}, seed {cell.seed}: {result}; {self.remaining_time()}"
        print(text, file=sys.stderr, flush=True)

    def remaining_time(self) -> str:
        """Estimated time of the remaining cells, from that of similar ones."""
        if not self._seconds:
            return "time left: not known yet"
        minutes = sum(map(self._expected_seconds, self._waiting)) / 60
        return f"{minutes:.0f} min left" if minutes < 120 else f"{minutes / 60:.1f} h left"

    def _position(self) -> str:
        return f"[{self._total - len(self._waiting) + 1}/{self._total}]"

    def _expected_seconds(self, cell: Cell) -> float:
        """Expected seconds of a cell: mean of the runs most like it, by row and column, else by column, else of any."""
        for alike in (
            [s for row, column, s in self._seconds if (row, column) == (cell.row, cell.column)],
            [s for _, column, s in self._seconds if column == cell.column],
        ):
            if alike:
                return statistics.fmean(alike)
        return statistics.fmean(seconds for *_, seconds in self._seconds)


def run_all(
    chosen: TableSelection, cells: Sequence[Cell], path: Path, place: Place
) -> dict[tuple[str, str], str]:
    """Run what has not been run, a line of the file for each; returns why cells (row, column) could not be."""
    why: dict[tuple[str, str], str] = {}
    runs = results.read(path)
    known = results.of(chosen, cells, runs)
    waiting: dict[str, Cell] = {}
    for cell in cells:
        if cell not in known and not cell.missing_reason():
            waiting.setdefault(cell.digest, cell)  # two columns may measure one run
    progress, machine = Progress(list(waiting.values()), runs), results.machine()
    for cell in waiting.values():
        if place.is_over:
            break
        try:
            run = run_one(chosen, cell, place, machine, progress)
        except TimeIsUp:
            break
        except FedsiloError as error:
            reason = " ".join(str(error).split())
            why |= {(same.row, same.column): reason for same in cells if same.digest == cell.digest}
            progress.finish_cell(cell, None, reason)
            continue
        results.append(path, run)
        if place.open is not None:
            checkpoint.path_of(place.open, cell.digest).unlink(missing_ok=True)
        progress.finish_cell(cell, run)
    return why


def run_one(
    chosen: TableSelection, cell: Cell, place: Place, machine: dict[str, str], progress: Progress
) -> Run:
    """Run one cell of a table.

    :raises FedsiloError: the job's failure, or that its dataset is not at hand.
    :raises TimeIsUp: before it was finished.
    """
    played = _play(cell, place, progress)
    scored = [line for line in played.history if "accuracy" in line.get("metrics", {})]
    told = [line.get("metrics", {}) for line in played.history]
    own = [metrics["personal_accuracy"] for metrics in told if "personal_accuracy" in metrics]
    return Run(
        table=chosen.name,
        scale=chosen.scale,
        row=cell.row,
        column=cell.column,
        seed=cell.seed,
        digest=cell.digest,
        settings=cell.settings,
        rounds=[line["round"] for line in scored],
        accuracies=[round(line["metrics"]["accuracy"], 5) for line in scored],
        by_class=[round(accuracy, 5) for accuracy in played.by_class],
        personal=own[-1] if own else None,
        local=played.local,
        personal_drawn=personal_drawn(played.history),
        costs=played.costs,
        seconds=round(played.seconds, 1),
        command=place.command,
        machine=machine,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


@dataclass(frozen=True)
class PlayedJob:
    """What is left of a job.

    :param history: its records of rounds.
    :param by_class: the final model's accuracy on each class of the test set; none where there is no common model.
    :param local: mean accuracy of the models that silos sent last on the test set.
    :param costs: see `measures.COSTS`.
    :param seconds: wall time, of all runs of the command that it took.
    """

    history: list[dict[str, Any]]
    by_class: list[float]
    local: float | None
    costs: dict[str, float]
    seconds: float


def _play(cell: Cell, place: Place, progress: Progress) -> PlayedJob:
    from fedsilo.simulation.execution import ExecutionPlan
    from fedsilo.simulation.simulate import open_simulation

    began = time.time()
    manifest, execution = cell.manifest(place.data, place.device), ExecutionPlan(workers=place.workers)
    with (
        tempfile.TemporaryDirectory(prefix="fedsilo-") as directory,
        closing(open_simulation(manifest, Path.cwd(), Path(directory), execution)) as simulation,
    ):
        traffic, models = Traffic.of(simulation), reference.LastModels.of(simulation)
        path = None if place.open is None else checkpoint.path_of(place.open, cell.digest)
        kept = checkpoint.KeptCell(path, simulation, traffic, began)
        told = 0
        with kept:
            for rounds in kept.run():
                if rounds > told:
                    told = rounds
                    progress.round(cell, rounds, simulation.rounds)
                if place.is_over:
                    raise TimeIsUp
        if simulation.failure is not None:
            raise simulation.failure
        history, by_class = reference.scored_records(cell.settings, manifest, simulation)
        # CPU time, since a machine may do other things meanwhile; that of workers is not this process's.
        costs = {} if place.workers else {"seconds": round(kept.cpu / len(simulation.history()), 4)}
        # Images in one place are not moved in rounds.
        costs |= {} if cell.settings.get("pooled") else _moved_bytes(traffic)
        return PlayedJob(history, by_class, models.accuracy(manifest), costs, kept.seconds)


def _moved_bytes(traffic: Traffic) -> dict[str, float]:
    return {
        "up": traffic.up / traffic.turns,
        "down": traffic.fetched / traffic.turns,
        "moved": (traffic.up + traffic.fetched) / traffic.silos,
    }
