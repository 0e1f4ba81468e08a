"""Federations as function calls: what a program or a notebook uses, as `fedsilo.run` and `fedsilo.simulate`.

They do what the command `fedsilo run` does, by the same functions, and leave the caller's process as it is: no signal
handler, no exit, errors as exceptions. They may be called in any thread, also while an event loop runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.allowed_imports import running
from fedsilo.api.loading import JobManifest
from fedsilo.errors import (
    DataInvalid,
    DeadlineExceeded,
    FedsiloError,
    JobFailed,
    ManifestInvalid,
    MethodError,
    PolicyRefused,
    QuorumLost,
    SiloFailed,
    WorkdirConflict,
)
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.local.history import History
from fedsilo.local.in_process import run_in_process
from fedsilo.local.progress import RunOutcome, RunProgress
from fedsilo.local.run import run_processes
from fedsilo.local.sweep.grid import Setting, grid
from fedsilo.local.sweep.results import SweepResult, require_plots, write_results
from fedsilo.local.sweep.runs import SweepDirectory, run_grid
from fedsilo.local.workdir import RunDirectory, default_directory
from fedsilo.simulation.execution import ExecutionPlan
from fedsilo.validation import Source, as_manifest

if TYPE_CHECKING:
    from torch import nn

    from fedsilo.local.display import Display

FAILURES: tuple[type[FedsiloError], ...] = (
    ManifestInvalid,
    DataInvalid,
    JobFailed,
    QuorumLost,
    DeadlineExceeded,
    SiloFailed,
    PolicyRefused,
    WorkdirConflict,
    MethodError,
)
"""Errors of a run, by exit code; the first of those that share one stands for reasons that have no class."""

OnRound = Callable[[Mapping[str, Any]], None]
"""Called with the record of each round as soon as it is complete."""


@dataclass(frozen=True)
class RunResult:
    """A run that ended with a model.

    :param directory: what it left, see docs/running-locally.md.
    :param metrics: of the last evaluation, such as `accuracy`.
    :param silos: name, state, samples and last round of each.
    :param seconds: wall-clock time.
    """

    directory: Path
    history: History
    metrics: Mapping[str, float]
    silos: tuple[Mapping[str, Any], ...]
    seconds: float

    @property
    def model_path(self) -> Path:
        """File of the trained model's tensors (safetensors); `model.json` beside it describes them."""
        return self.directory / "model.safetensors"

    def model(self) -> nn.Module:
        """The trained model, see `load_model`."""
        from fedsilo.learning.saved import load_model

        with running():  # of a job that was run here
            return load_model(self.model_path)


@running()
def run(
    manifest: JobManifest | Source,
    directory: Path | str | None = None,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    display: bool = True,
) -> RunResult:
    """Run a job on this machine: an aggregator, and a guard and a trainer for each silo, as processes of their own.

    Each of them ends with this call, also when that is interrupted; `resume` then goes on in the same directory.

    :param manifest: a file, or what `load_manifest` made of one; relative paths start from the file's directory.
    :param directory: of the run; `runs/JOB-TIME` by default.
    :param display: show progress on standard output: a table in a terminal, lines in a notebook.
    :raises FedsiloError: as exit codes of `fedsilo run` say; `JobFailed` where the federation ran and failed.
    """
    loaded = as_manifest(manifest)
    workdir = _workdir(loaded, directory)
    with ForkServerClient(str(workdir.root)) as server:
        callback = _RoundCallback(display, on_round)
        return _result(workdir, run_processes(loaded, workdir, _root(loaded), resume, callback, server))


@running()
def simulate(
    manifest: JobManifest | Source,
    directory: Path | str | None = None,
    *,
    workers: int = 0,
    batch_clients: int = 0,
    on_round: OnRound | None = None,
    display: bool = True,
) -> RunResult:
    """Run a job in this process, in memory: no transport, no keys, no isolation, and the same model.

    PyTorch keeps the settings under which the job's result is repeatable: its threads and deterministic kernels.

    :param workers: processes that share the silos' work, forked from this one; no byte of the result changes.
    :param batch_clients: silos that are trained at once, where the method permits it; equal up to rounding.

    Other parameters and errors are those of `run`. It cannot be resumed.
    """
    loaded = as_manifest(manifest)
    workdir = _workdir(loaded, directory)
    execution = ExecutionPlan(workers, batch_clients)
    callback = _RoundCallback(display, on_round)
    return _result(workdir, run_in_process(loaded, workdir, _root(loaded), callback, execution))


@running()
def sweep(
    manifest: JobManifest | Source,
    settings: Mapping[str, Sequence[Any]],
    directory: Path | str | None = None,
    *,
    seeds: int = 1,
    partition_seeds: int = 1,
    resume: bool = False,
    workers: int = 0,
    batch_clients: int = 0,
    display: bool = True,
) -> SweepResult:
    """Run a job in this process with every combination of these values, each with several seeds.

    A run that fails does not end the sweep: its row says why. What is interrupted goes on with `resume` in the same
    directory, where complete runs stay.

    :param settings: field of the job, such as `spec.training.batchSize` -> the values that it takes.
    :param directory: `runs/JOB-sweep-TIME` by default.
    :param seeds: runs of each combination, with `spec.training.seed` from the manifest's on.
    :param partition_seeds: values of the seed of the silos' partitions with each of these, also from the manifest's on.
    :raises FedsiloError: before the first run, where manifest, settings or directory cannot be used.
    """
    loaded = as_manifest(manifest)
    points = grid(
        loaded, [Setting(path, tuple(values)) for path, values in settings.items()], seeds, partition_seeds
    )
    require_plots()
    chosen = default_directory(f"{loaded.job.metadata.name}-sweep") if directory is None else Path(directory)
    place = SweepDirectory(chosen.resolve())
    say: Callable[[str], None] = print if display else lambda _: None
    with place.hold_directory(points, resume):
        shown, execution = _RoundCallback(display, None), ExecutionPlan(workers, batch_clients)
        runs = run_grid(points, place, _root(loaded), shown, execution, say)
        write_results(place.root, runs)
    return SweepResult(place.root, runs)


def _workdir(manifest: JobManifest, directory: Path | str | None) -> RunDirectory:
    chosen = default_directory(manifest.job.metadata.name) if directory is None else Path(directory)
    return RunDirectory(chosen.resolve())


def _root(manifest: JobManifest) -> Path:
    return Path(manifest.file).resolve().parent


def _result(workdir: RunDirectory, outcome: RunOutcome) -> RunResult:
    document = outcome.document
    if document["phase"] != "Succeeded":
        raise _error(document["reason"], document["message"], outcome.exit_code)
    return RunResult(
        directory=workdir.root,
        history=History(outcome.rounds),
        metrics=document["metrics"],
        silos=tuple(document["silos"]),
        seconds=document["seconds"],
    )


def _error(reason: str, message: str, exit_code: int) -> FedsiloError:
    """A job's failure as the exception of its reason or, where that has none, of its exit code."""
    exact = next((kind for kind in FAILURES if (kind.reason, kind.exit_code) == (reason, exit_code)), None)
    alike = next((kind for kind in FAILURES if kind.exit_code == exit_code), FedsiloError)
    error = (exact or alike)(message)
    error.reason = reason
    return error


class _RoundCallback:
    """A display that calls back for each new round, and shows progress too where that is wanted."""

    def __init__(self, display: bool, on_round: OnRound | None) -> None:
        self._display: Display | None = None
        if display:
            from fedsilo.local.display import display_for

            self._display = display_for(sys.stdout)
        self._on_round = on_round
        self._known = 0

    @contextmanager
    def showing(self, progress: RunProgress) -> Iterator[None]:
        """Call back for new rounds only, since those of an earlier run of the directory are known already."""
        self._known = len(progress.rounds)
        if self._display is None:
            yield
        else:
            with self._display.showing(progress):
                yield
        self._call_back(progress)

    def update(self, progress: RunProgress) -> None:
        if self._display is not None:
            self._display.update(progress)
        self._call_back(progress)

    def _call_back(self, progress: RunProgress) -> None:
        for record in progress.rounds[self._known :]:
            self._known += 1
            if self._on_round is not None:
                self._on_round(record)
