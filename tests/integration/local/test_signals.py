"""A run that is stopped ends with the right code, says how to go on, and leaves no process behind."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.integration.local.conftest import Launch
from tests.integration.local.runs import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
    command,
    end,
    pids,
    running_processes,
    training,
    wait_until,
)


def test_sigterm_at_the_start(steady_manifest: Path, tmp_path: Path, launch: Launch) -> None:
    workdir = tmp_path / "run"
    process = launch(steady_manifest, workdir)
    wait_until(lambda: len(pids(workdir)) == 6, "the start of all processes")
    process.terminate()
    ended = end(process, workdir)
    assert ended.code == 143
    assert ended.err.splitlines()[-1] == f"fedsilo: terminated; go on with --workdir {workdir} --resume"
    assert running_processes(workdir) == {}


def test_sigkill_in_a_round(steady_manifest: Path, tmp_path: Path, launch: Launch) -> None:
    workdir = tmp_path / "run"
    process = launch(steady_manifest, workdir)
    wait_until(lambda: training(workdir, "east", round=1), "a task")
    assert len(running_processes(workdir)) == 7
    process.kill()
    wait_until(lambda: not running_processes(workdir), "the end of all processes")


@pytest.mark.thorough
def test_sigterm_while_silos_train_alone(tmp_path: Path, steady_manifest: Path, launch: Launch) -> None:
    workdir = tmp_path / "run"
    process = launch(steady_manifest, workdir, "--alone")
    wait_until(
        lambda: any("fedsilo.local.baseline" in line for line in running_processes(workdir).values()),
        "training alone",
    )
    process.terminate()
    assert end(process, workdir).code == 143
    assert running_processes(workdir) == {}


@pytest.mark.thorough
def test_ctrl_c_in_a_terminal(steady_manifest: Path, tmp_path: Path) -> None:
    """The terminal sends SIGINT to the run alone; what was shown there until then is the live table."""
    workdir = tmp_path / "run"
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            command(steady_manifest, workdir),
            cwd=tmp_path,
            env={**ENVIRONMENT, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        ) as process:
            shown = _read_until(ours, "Awaited")
            os.write(ours, b"\x03")
            shown += _read_until(ours, "--resume")
            assert process.wait(PATIENCE_SECONDS) == 130
    finally:
        os.close(theirs)
        os.close(ours)
    assert "federation/digits: fedavg, mlp, 2 silos" in shown
    assert f"fedsilo: interrupted; go on with --workdir {workdir} --resume" in shown
    assert running_processes(workdir) == {}


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(terminal: int, text: str) -> str:
    seen = ""

    def found() -> bool:
        nonlocal seen
        seen += os.read(terminal, 65536).decode(errors="replace")
        return text in seen

    wait_until(found, f"{text!r} in the terminal")
    return seen
