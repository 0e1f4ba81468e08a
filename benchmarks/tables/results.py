"""Finished runs, one JSON line each, so that a table continues where it was left."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.tables.cells import Cell
from benchmarks.tables.definition import TableSelection


@dataclass(frozen=True)
class Run:
    """One cell and seed that was run to its end.

    :param digest: of `settings`.
    :param accuracies: test accuracy of the evaluated rounds, from 0 to 1; `rounds` has their numbers.
    :param by_class: the final model's accuracy on each class of the test set.
    :param personal: mean accuracy of the silos' own models in the last round, where the job reports one.
    :param personal_drawn: the same over the silos that the last round drew.
    :param seconds: wall time, of a machine that may have done other things.
    :param command: that began it.
    :param machine: processor, cores, versions.
    :param date: UTC, RFC 3339.
    :param local: mean accuracy on the test set of the models that silos sent in the last round in which they did.
    :param costs: measure -> bytes or seconds, see `measures.COSTS`; earlier runs have none.
    """

    table: str
    scale: str
    row: str
    column: str
    seed: int
    digest: str
    settings: dict[str, Any]
    rounds: list[int]
    accuracies: list[float]
    personal: float | None
    seconds: float
    command: str
    machine: dict[str, str]
    date: str
    by_class: list[float] = field(default_factory=list)
    local: float | None = None
    costs: dict[str, float] = field(default_factory=dict)
    personal_drawn: float | None = None


def read(path: Path) -> list[Run]:
    """All runs of a file; none where there is none. A line that was cut off by a stop is skipped."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Run(**json.loads(line)))
        except (json.JSONDecodeError, TypeError):
            continue
    return found


def append(path: Path, run: Run) -> None:
    """Add a line, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(run), sort_keys=True, separators=(",", ":"))
    with path.open("a+b") as file:
        if file.tell() and not _ends_line(file):
            text = "\n" + text
        file.write((text + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _ends_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def of(chosen: TableSelection, cells: Iterable[Cell], runs: Iterable[Run]) -> dict[Cell, Run]:
    """The run of each cell that has one; cells of equal settings share it."""
    by_digest = {run.digest: run for run in runs if run.scale == chosen.scale}
    return {cell: by_digest[cell.digest] for cell in cells if cell.digest in by_digest}


def machine() -> dict[str, str]:
    """Properties of the machine that computes, without its name: hardware, versions of the software and commit."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        **({"gpu": gpu} if gpu else {}),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fedsilo": version("fedsilo"),
        "commit": revision(Path(__file__).parents[2]),
    }


def processor() -> str:
    """Name of the CPU, as the kernel has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


REVISION = "FEDSILO_REVISION"
"""Environment variable with the commit, for a copy that git knows nothing of."""


def revision(place: Path) -> str:
    """The commit of a working copy, `-dirty` where a tracked file differs from it; or what `REVISION` says it is.

    Those of docs/results do not count: the runs themselves write them.
    """

    def git_output(*command: str) -> str:
        try:
            asked = subprocess.run(["git", "-C", str(place), *command], capture_output=True, text=True)
        except OSError:  # there is no git
            return ""
        return asked.stdout.strip()

    if (stated := os.environ.get(REVISION)) is not None:
        return stated
    commit = git_output("rev-parse", "--short", "HEAD")
    changed = git_output("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results")
    return (f"{commit}-dirty" if changed else commit) or "unknown"
