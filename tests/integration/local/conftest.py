"""Runs that several tests look at, and runs that are ended whatever a test finds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import EndedRun, run, running_processes, start

Launch = Callable[..., subprocess.Popen[str]]

STEADY_TRAINING = {"rounds": 3, "localEpochs": 15}
"""Training whose rounds last long enough to be hit in the middle."""


def selected_values(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """Values of a parameter of the module's tests that are to run: a fixture prepares no more than these need."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    given = [
        test.callspec.params for test in tests if test.path == request.path and hasattr(test, "callspec")
    ]
    return list(dict.fromkeys(str(values[parameter]) for values in given if parameter in values))


@pytest.fixture(scope="session")
def steady_manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of two silos and three rounds of about a fifth of a second."""
    path = tmp_path_factory.mktemp("steady") / "digits.yaml"
    return write(
        path, silos("north", "east"), training=STEADY_TRAINING | {"optimizer": {"learningRate": 0.05}}
    )


@pytest.fixture(scope="session")
def undisturbed_run(steady_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """The steady job, run undisturbed to its end; tests must not write into its directory."""
    return run(steady_manifest, tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts runs of `fedsilo run`; whatever a test leaves of them is killed at its end."""
    started: list[tuple[subprocess.Popen[str], Path]] = []

    def begin(manifest: Path, workdir: Path, *options: str, cold: bool = False) -> subprocess.Popen[str]:
        process = start(manifest, workdir, *options, cold=cold)
        started.append((process, workdir))
        return process

    yield begin
    for process, workdir in started:
        process.kill()
        process.communicate()
        for pid in running_processes(workdir):
            os.kill(pid, signal.SIGKILL)
