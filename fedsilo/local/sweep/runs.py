"""Running a grid in this process, in a directory that remembers which of its runs are complete.

sweep.json          which grid it is, with a digest of itself
lock                held while the sweep goes on
runs/001/           the directory of a run; outcome.json in it, with a digest, says that it is complete
results.csv         a line for each run
means.csv           a line for each combination of values: mean and standard deviation over its runs
rounds.csv          a line for each evaluation of each run
scores.csv          a line for each silo in each evaluation, where all silos permit their scores by name
curves.svg          the metrics over the rounds
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.errors import WorkdirConflict
from fedsilo.files.durable import make_directory, remove
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.files.locking import NAME as LOCK_FILE
from fedsilo.files.locking import DirectoryLock
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.display import Display
from fedsilo.local.in_process import run_in_process
from fedsilo.local.sweep.grid import GridPoint, grid_digest
from fedsilo.local.workdir import RunDirectory
from fedsilo.simulation.execution import ExecutionPlan

REPEAT = "remove it, and the run is repeated"
"""What can be done about a damaged outcome of a run."""

BEGIN_AGAIN = "put it back from a copy, or begin again in another directory"


@dataclass(frozen=True)
class GridRun:
    """A run of the grid that has ended.

    :param document: what `fedsilo run --json` prints of it.
    :param rounds: records of its rounds.
    :param exit_code: see `fedsilo.errors`.
    """

    point: GridPoint
    document: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]
    exit_code: int = 0

    @property
    def succeeded(self) -> bool:
        """Whether it ended with a model."""
        return bool(self.document["phase"] == "Succeeded")


@dataclass(frozen=True)
class SweepDirectory:
    """Paths of a sweep."""

    root: Path

    def run(self, number: int) -> Path:
        """Directory of a run, counted from 1."""
        return self.root / "runs" / f"{number:03}"

    @contextmanager
    def hold_directory(self, points: Sequence[GridPoint], resume: bool) -> Iterator[None]:
        """Hold the directory for this grid.

        :raises WorkdirConflict: when it holds something else, a sweep that is not to be resumed or one that goes on.
        """
        self._refuse_foreign_directory(resume)
        make_directory(self.root / "runs")
        with DirectoryLock(self.root) as lock:
            if not lock.acquire():
                raise WorkdirConflict(
                    f"{self.root}: another sweep is using it; wait for its end or name another directory with "
                    "--workdir"
                )
            self._require_grid(points, resume)
            yield

    def _refuse_foreign_directory(self, resume: bool) -> None:
        if self.root.exists() and not self.root.is_dir():
            raise WorkdirConflict(f"{self.root}: is not a directory; name another with --workdir")
        if (self.root / "sweep.json").exists():
            return
        if resume:
            raise WorkdirConflict(f"{self.root}: holds no sweep to resume; leave out --resume to begin one")
        names = sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []
        # Those two are there where a sweep was killed before it had written what it is.
        strangers = [name for name in names if name not in (LOCK_FILE, "runs")]
        if strangers or any((self.root / "runs").glob("*")):
            raise WorkdirConflict(
                f"{self.root}: is not empty and holds no sweep; name an empty directory with --workdir"
            )

    def _require_grid(self, points: Sequence[GridPoint], resume: bool) -> None:
        digest, path = grid_digest(points), self.root / "sweep.json"
        found = read_with_digest(path, BEGIN_AGAIN, {"grid": str})
        if found is None:
            runs = [{"values": point.values, **point.seeds, "digest": point.digest} for point in points]
            write_with_digest(path, {"grid": digest, "runs": runs})
        elif found["grid"] != digest:
            raise WorkdirConflict(
                f"{self.root}: holds another sweep than this manifest, --set and --seeds give; give those that it "
                "began with, or name another directory with --workdir"
            )
        elif not resume:
            raise WorkdirConflict(
                f"{self.root}: holds this sweep already; add --resume to go on with it, or name another directory "
                "with --workdir"
            )


def run_grid(
    points: Sequence[GridPoint],
    directory: SweepDirectory,
    data_root: Path,
    display: Display,
    execution: ExecutionPlan,
    say: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> list[GridRun]:
    """Outcomes of all runs of a sweep; those that are complete already are read, those that failed are tried again.

    :param data_root: directory that relative paths start from.
    :param say: is told which run begins.
    :param check: called now and then; what it raises ends the sweep, and the run that goes on is lost.
    """
    runs = []
    for number, point in enumerate(points, start=1):
        what = f"run {number}/{len(points)}: {point}"
        run = _complete(directory.run(number), point)
        if run is None:
            say(what)
            run = _run(directory.run(number), point, data_root, display, execution, say, check)
        else:
            say(f"{what}: complete already")
        runs.append(run)
    return runs


def _complete(directory: Path, point: GridPoint) -> GridRun | None:
    fields = {"document": dict, "rounds": list}
    found = read_with_digest(directory / "outcome.json", REPEAT, fields)
    if found is None:
        return None
    run = GridRun(point, found["document"], found["rounds"])
    return run if run.succeeded else None


def _run(
    directory: Path,
    point: GridPoint,
    data_root: Path,
    display: Display,
    execution: ExecutionPlan,
    say: Callable[[str], None],
    check: Callable[[], None],
) -> GridRun:
    if directory.exists():
        remove(directory)  # of a run that was killed or failed, which cannot be resumed in one process
    outcome = run_in_process(point.manifest, RunDirectory(directory), data_root, display, execution, check)
    run = GridRun(point, outcome.document, outcome.rounds, outcome.exit_code)
    if not run.succeeded:
        say(f"{run.document['reason']}: {run.document['message']}")
    space = DiskSpaceCheck(directory, say, check)
    complete = {"document": run.document, "rounds": list(run.rounds)}
    space.wait(lambda: write_with_digest(directory / "outcome.json", complete))
    return run
