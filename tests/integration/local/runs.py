"""`fedsilo run` as a person runs it: a process, its exit code, what it prints and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from tests import warm
from tests.paths import ROOT

FEDSILO = "fedsilo.cli.main"
"""The command, by its module."""
ENVIRONMENT = {
    **os.environ,
    # Dataset functions of the tests are imported in trainers.
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
}
NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})
T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Seconds after which what is waited for will not come; generous, for machines that do other things too."""


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended."""

    code: int
    out: str
    err: str
    workdir: Path

    @property
    def document(self) -> dict[str, Any]:
        """The last line of standard output, of a run with `--json`."""
        document: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return document

    @property
    def history(self) -> list[dict[str, Any]]:
        """Records of the completed rounds."""
        return history(self.workdir)


def arguments(manifest: Path, workdir: Path, *options: str) -> list[str]:
    """What a run's command line says after `fedsilo`."""
    return ["run", "-f", str(manifest), "--workdir", str(workdir), *options]


def command(manifest: Path, workdir: Path, *options: str) -> list[str]:
    """The command line of a run."""
    return [sys.executable, "-m", FEDSILO, *arguments(manifest, workdir, *options)]


def start(
    manifest: Path,
    workdir: Path,
    *options: str,
    cold: bool = False,
    environment: Mapping[str, str] = NOTHING_ELSE,
) -> subprocess.Popen[str]:
    """Begin a run with `--json`.

    :param environment: variables that it has, too.
    :param cold: whether it begins with an interpreter of its own in any case; see `tests.warm`.
    """
    return warm.start(
        FEDSILO,
        arguments(manifest, workdir, "--json", *options),
        cold=cold,
        cwd=manifest.parent,
        env={**ENVIRONMENT, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[str], workdir: Path, patience: float = PATIENCE_SECONDS) -> EndedRun:
    """Wait for the end of a run; a run that does not end is a failure, and is ended."""
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the run did not end: {out}{err}") from None
    return EndedRun(process.returncode, out, err, workdir)


def run(
    manifest: Path,
    workdir: Path,
    *options: str,
    cold: bool = False,
    environment: Mapping[str, str] = NOTHING_ELSE,
) -> EndedRun:
    """A whole run with `--json`; parameters as those of `start`."""
    return end(start(manifest, workdir, *options, cold=cold, environment=environment), workdir)


def fedsilo(*given: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Any command of `fedsilo`, run to its end."""
    return warm.run(FEDSILO, given, env=ENVIRONMENT, cwd=cwd)


def wait_until(condition: Callable[[], T], what: str) -> T:
    """The first true value of a condition."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < limit:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


def history(workdir: Path) -> list[dict[str, Any]]:
    """Records of the rounds that the aggregator has completed so far."""
    path = workdir / "aggregator" / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def pids(workdir: Path) -> Mapping[str, int | None]:
    """Process ids of the run's parts, by name."""
    path = workdir / "processes.json"
    found: dict[str, int | None] = json.loads(path.read_text()) if path.exists() else {}
    return found


def running_processes(workdir: Path) -> dict[int, str]:
    """Processes that were started for a working directory and still run, with their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(workdir) in line:
            found[int(path.parent.name)] = line
    return found


def kill(workdir: Path, part: str) -> int:
    """SIGKILL one part of a run; its process id."""
    pid = pids(workdir)[part]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def training(workdir: Path, silo: str, round: int) -> bool:
    """Whether a silo's trainer has a task of this or a later round and has not answered it."""
    directory = workdir / "silos" / silo
    try:
        task = json.loads((directory / "inbox" / "task.json").read_text())
    except FileNotFoundError:
        return False
    return (
        task["step"] == "train"
        and task["round"] >= round
        and not (directory / "drop" / task["task"] / "reply.json").exists()
    )
