"""What a run makes of processes that end, and of a disk that is full while they work."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.loading import load
from fedsilo.files.json_files import write_json
from fedsilo.local import outcome, supervision
from fedsilo.local.child_processes import ChildProcess
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.progress import RunProgress
from fedsilo.local.supervision import Supervision
from fedsilo.local.workdir import RunDirectory
from fedsilo.process import termination_message
from tests.integration.local.manifest import silos, write


class FakeServer:
    """A fork server whose processes end when they are told to."""

    pid = 1

    def __init__(self) -> None:
        self.started: list[str] = []
        self.codes: dict[int, int] = {}

    def is_ready(self) -> bool:
        return True

    def poll(self) -> None:
        """Do nothing, because no process ends by itself."""

    def start(self, program: str, *_: Any) -> int:
        self.started.append(program)
        return 1 + len(self.started)

    def exit_code(self, pid: int) -> int | None:
        return self.codes.get(pid)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def run(server: FakeServer, tmp_path: Path) -> Supervision:
    """Aggregator, guard and trainer of one silo, all of them started."""
    manifest = load(write(tmp_path / "job.yaml", silos("north")))
    workdir = RunDirectory(tmp_path / "run")
    workdir.volume("north").prepare()
    progress = RunProgress(manifest, workdir)
    processes = [
        ChildProcess(server, name, name, [], tmp_path / "log", 0, last_words=words)  # type: ignore[arg-type]
        for name, words in (
            ("aggregator", tmp_path / "aggregator.end.json"),
            ("north guard", tmp_path / "guard.end.json"),
            ("north trainer", None),
        )
    ]
    space = DiskSpaceCheck(workdir.root, progress.note)
    run = Supervision(processes[0], processes[1:], server, progress, space)  # type: ignore[arg-type]
    run.step()
    return run


def end(run: Supervision, server: FakeServer, name: str, code: int) -> None:
    """Let one of the processes end, and the run notice it."""
    [process] = [process for process in (run.aggregator, *run.agents) if process.name == name]
    assert process.pid is not None
    server.codes[process.pid] = code
    run.step()


def failure(run: Supervision) -> Any:
    """What the guard is told of its trainer."""
    path = run.progress.workdir.volume("north").drop / "failed.json"
    return json.loads(path.read_bytes()) if path.exists() else None


def test_a_trainer_that_ends_with_0_before_the_job_has_failed(run: Supervision, server: FakeServer) -> None:
    end(run, server, "north trainer", 0)
    said = failure(run)
    assert said["reason"] == "TrainerLost"
    assert said["message"] == (
        "the trainer ended with exit code 0 before the job was over; its loader, model or method must not end the "
        "process, see its log"
    )
    [note] = run.progress.notes
    assert note.startswith("north trainer: ended with exit code 0 too early; see ")


def test_a_trainer_that_was_dismissed_has_not_failed(run: Supervision, server: FakeServer) -> None:
    write_json(run.progress.workdir.volume("north").task, {"step": "finish", "task": "finish"})
    end(run, server, "north trainer", 0)
    end(run, server, "north guard", 0)
    assert (failure(run), run.progress.notes) == (None, [])


def test_the_trainer_s_own_word_is_not_replaced(run: Supervision, server: FakeServer) -> None:
    write_json(run.progress.workdir.volume("north").drop / "failed.json", {"reason": "DataInvalid"})
    end(run, server, "north trainer", 3)
    assert failure(run) == {"reason": "DataInvalid"}


def test_the_aggregator_is_told_of_a_guard_that_has_ended_and_why(
    run: Supervision, server: FakeServer
) -> None:
    guard = run.agents[0]
    assert guard.last_words is not None
    guard.last_words.write_bytes(termination_message("ManifestInvalid", "SSL_CERT_FILE=gone: no such file"))
    end(run, server, "north guard", 2)
    assert json.loads(run.progress.workdir.lost_silos.read_bytes()) == {
        "silo-north/north": {"reason": "ManifestInvalid", "message": "SSL_CERT_FILE=gone: no such file"}
    }
    [note] = run.progress.notes
    assert note.startswith(
        "north guard: ended with exit code 2: ManifestInvalid: SSL_CERT_FILE=gone: no such file"
    )


@pytest.mark.parametrize("left", [b"", b'{"reason": "Mani'])
def test_a_guard_without_last_words_is_lost_by_its_exit_code(
    run: Supervision, server: FakeServer, left: bytes
) -> None:
    guard = run.agents[0]
    assert guard.last_words is not None
    guard.last_words.write_bytes(left)
    end(run, server, "north guard", -9)
    assert json.loads(run.progress.workdir.lost_silos.read_bytes()) == {
        "silo-north/north": {
            "reason": "GuardLost",
            "message": "the guard ended with exit code -9; see its log",
        }
    }


def test_a_guard_that_is_done_is_not_lost(run: Supervision, server: FakeServer) -> None:
    end(run, server, "north guard", 0)
    assert not run.progress.workdir.lost_silos.exists()


def test_an_aggregator_that_ends_before_any_status_is_quoted(run: Supervision) -> None:
    run.progress.cause = ("ManifestInvalid", "port 8443: cannot be listened on")
    assert run.progress.failure() == {
        "reason": "ManifestInvalid",
        "message": f"port 8443: cannot be listened on; see {run.progress.workdir.logs / 'aggregator.log'}",
    }


def test_on_a_full_disk_nothing_is_started_again_until_there_is_space(
    run: Supervision, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True

    def write(path: Path, document: Any) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_json(path, document)

    monkeypatch.setattr(supervision, "write_json", write)
    monkeypatch.setattr("fedsilo.local.child_processes.BACKOFF_SECONDS", 0.0)
    for process in run.agents:
        process.backoff_limit = 1
    end(run, server, "north trainer", 1)
    for _ in range(3):
        run.step()
    assert server.started.count("north trainer") == 1
    assert run.progress.notes == [
        f"{run.progress.workdir.root}: the disk is full; the run goes on when there is space"
    ]
    full = False
    run.step()
    run.step()
    assert server.started.count("north trainer") == 2
    assert json.loads((run.progress.workdir.root / "processes.json").read_text())["north trainer"] == 5
    assert run.progress.notes[1:] == [f"{run.progress.workdir.root}: there is space again; the run goes on"]


def test_the_end_of_a_trainer_on_a_full_disk_is_reported_later(
    run: Supervision, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def write(path: Path, document: Any) -> None:
        attempts.append(path.name)
        if len(attempts) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_json(path, document)

    for module in (supervision, outcome):
        monkeypatch.setattr(module, "write_json", write)
    end(run, server, "north trainer", 9)
    assert failure(run) is None
    for _ in range(4):
        run.step()
    assert failure(run)["message"] == "the trainer ended with exit code 9; see its log"
