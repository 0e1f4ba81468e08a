"""Processes that fork from one warmed process: what they take with them, how they end, and who ends with whom."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import FedsiloError
from fedsilo.local import child_processes
from fedsilo.local.child_processes import ChildProcess, ForkServerClient, StartFailed, end_all, logins

PROGRAM = "tests.unit.local.programs"
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServerClient]:
    with ForkServerClient("tests") as server:
        assert server.is_ready(PATIENCE_SECONDS)
        yield server


@pytest.fixture
def light_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the test's own servers begin in a tenth of a second."""
    monkeypatch.setattr(child_processes, "FORK_SERVER", "tests.unit.local.light_fork_server")


@pytest.fixture
def child(server: ForkServerClient, tmp_path: Path) -> Callable[..., ChildProcess]:
    def make(*arguments: str, backoff_limit: int = 0) -> ChildProcess:
        return ChildProcess(server, "child", PROGRAM, arguments, tmp_path / "log", backoff_limit)

    return make


def supervise_until(process: ChildProcess, until: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not until():
        assert time.monotonic() < limit, process
        process.server.poll()
        process.supervise()
        time.sleep(0.01)


def to_its_end(process: ChildProcess) -> int | None:
    supervise_until(process, lambda: process.ended)
    return process.exit_code


def child_description(child: Callable[..., ChildProcess], path: Path) -> dict[str, Any]:
    assert to_its_end(child("describe", str(path))) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_child_has_nothing_of_its_parent_but_memory(
    child: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    found = child_description(child, tmp_path / "description")
    descriptors = found["descriptors"]
    assert descriptors.pop("0").startswith("pipe:")
    assert descriptors == {"1": str(tmp_path / "log"), "2": str(tmp_path / "log")}
    assert found["session"]
    assert found["threads"] == 1
    assert found["handlers"] == [str(signal.SIG_DFL)] * 2
    assert found["torch"]
    assert not found["cuda"]


@pytest.mark.usefixtures("light_servers")
def test_a_child_does_not_learn_the_login_at_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://hospital:a-secret@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "stays.example")
    with ForkServerClient("tests") as server:
        path = tmp_path / "description"
        child = ChildProcess(server, "child", PROGRAM, ("describe", str(path)), tmp_path / "log", 0)
        assert to_its_end(child) == 0
    environment = json.dumps(json.loads(path.read_text())["environment"])
    assert "stays.example" in environment
    assert "a-secret" not in environment


@pytest.mark.usefixtures("light_servers")
def test_only_the_child_that_needs_it_learns_the_login_at_an_mlflow_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "a-secret")
    with ForkServerClient("tests") as server:
        found = []
        for number, environment in enumerate((logins(), {})):
            path = tmp_path / str(number)
            arguments = ("describe", str(path))
            child = ChildProcess(
                server, "child", PROGRAM, arguments, tmp_path / "log", 0, environment=environment
            )
            assert to_its_end(child) == 0
            found.append(json.dumps(json.loads(path.read_text())["environment"]))
    assert ["a-secret" in environment for environment in found] == [True, False]


def test_a_child_looks_as_if_it_had_been_started_by_itself(
    child: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    found = child_description(child, tmp_path / "description")
    arguments = ["describe", str(tmp_path / "description"), "--exit-with-parent"]
    assert found["title"] == ["python", "-m", PROGRAM, *arguments]
    assert found["arguments"] == arguments
    assert found["main"] == PROGRAM


def test_children_draw_different_random_numbers(child: Callable[..., ChildProcess], tmp_path: Path) -> None:
    first, second = (child_description(child, tmp_path / name)["random"] for name in ("first", "second"))
    assert set(first).isdisjoint(second)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["exit", "0"], 0), (["exit", "3"], 3), (["raise", "x"], 1), (["quit", "x"], 1), (["crash"], -11)],
)
def test_the_exit_code_is_the_child_s(
    child: Callable[..., ChildProcess], arguments: list[str], code: int
) -> None:
    assert to_its_end(child(*arguments)) == code


def test_what_a_child_raises_is_in_its_log(child: Callable[..., ChildProcess], tmp_path: Path) -> None:
    to_its_end(child("raise", "something unforeseen"))
    assert (tmp_path / "log").read_text().splitlines()[-1] == "ValueError: something unforeseen"


def test_a_crash_is_tried_again_as_often_as_the_job_says(
    child: Callable[..., ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "BACKOFF_SECONDS", 0.01)
    crashing, final = child("exit", "9", backoff_limit=2), child("exit", "3", backoff_limit=2)
    assert (to_its_end(crashing), crashing.crashes) == (9, 3)
    assert (to_its_end(final), final.crashes) == (3, 0)


def test_a_child_that_ignores_sigterm_is_killed(
    child: Callable[..., ChildProcess],
    server: ForkServerClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_processes, "GRACE_SECONDS", 0.2)
    process, started = child("ignore", str(tmp_path / "here")), tmp_path / "here"
    supervise_until(process, started.exists)
    pid = process.pid
    end_all([process], server)
    assert process.exit_code == -signal.SIGKILL
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("light_servers")
@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_server_that_ends_takes_its_children_along(end: str, tmp_path: Path) -> None:
    with ForkServerClient("tests") as server:
        assert server.is_ready(PATIENCE_SECONDS)
        here = tmp_path / "here"
        process = ChildProcess(server, "child", PROGRAM, ["stay", str(here)], tmp_path / "log", 1)
        supervise_until(process, here.exists)
        pid = process.pid
        assert pid is not None
        if end == "close":
            server.close()
        else:
            before = server.pid
            os.kill(before, signal.SIGKILL)
            # The child is started again, from another server.
            supervise_until(process, lambda: process.pid not in (None, pid) and here.exists())
            assert (process.crashes, server.pid != before) == (1, True)
            end_all([process], server)
        limit = time.monotonic() + PATIENCE_SECONDS
        while Path(f"/proc/{pid}/cwd").exists():
            assert time.monotonic() < limit
            time.sleep(0.01)


@pytest.mark.usefixtures("light_servers")
def test_what_children_have_started_ends_with_them_wherever_it_went(tmp_path: Path) -> None:
    with ForkServerClient("tests") as server:
        assert server.is_ready(PATIENCE_SECONDS)
        for name, end in (("ended", "go"), ("ending", "stay")):
            pids = tmp_path / name
            process = ChildProcess(server, "child", PROGRAM, ["begin", str(pids), end], tmp_path / "log", 0)
            if end == "stay":
                supervise_until(process, pids.exists)
            else:
                assert to_its_end(process) == 0
                assert all_gone(pids), "nothing is left when the last child has ended"
    assert all_gone(tmp_path / "ending"), "nothing is left when the server has ended"


@pytest.mark.usefixtures("light_servers")
def test_a_run_that_is_killed_leaves_nothing_of_what_its_children_have_started(tmp_path: Path) -> None:
    server = ForkServerClient("tests")
    assert server.is_ready(PATIENCE_SECONDS)
    pids = tmp_path / "pids"
    process = ChildProcess(server, "child", PROGRAM, ["begin", str(pids), "stay"], tmp_path / "log", 0)
    supervise_until(process, pids.exists)
    server._requests.close()  # all that the end of a process does to its fork server
    limit = time.monotonic() + PATIENCE_SECONDS
    while not all_gone(pids):
        assert time.monotonic() < limit
        time.sleep(0.01)
    server.close()


def all_gone(pids: Path) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in json.loads(pids.read_text()))


def first_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.pathsep.join(filter(None, sys.path))}")


@pytest.mark.usefixtures("light_servers")
def test_an_installation_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cryptography.py").write_text("raise ImportError('broken on purpose')\n")
    first_on_path(monkeypatch, tmp_path)
    with (
        ForkServerClient("tests") as server,
        pytest.raises(FedsiloError, match=r"exit code 1, .*broken on purpose"),
    ):
        server.is_ready(PATIENCE_SECONDS)


@pytest.mark.usefixtures("light_servers")
@pytest.mark.parametrize("noticed", [True, False])
def test_a_server_that_dies_before_a_start_is_replaced(noticed: bool, tmp_path: Path) -> None:
    with ForkServerClient("tests") as server:
        assert server.is_ready(PATIENCE_SECONDS)
        before = server.pid
        os.kill(before, signal.SIGKILL)
        os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
        process = ChildProcess(server, "child", PROGRAM, ["exit", "0"], tmp_path / "log", 1)
        if noticed:
            server.poll()
        assert to_its_end(process) == 0
        assert server.pid != before


def test_a_start_that_the_system_refuses_is_a_crash_of_that_process_alone(
    server: ForkServerClient,
    child: Callable[..., ChildProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = ChildProcess(server, "child", PROGRAM, ["exit", "0"], tmp_path / "log", 0)
    monkeypatch.setattr(server, "start", _refuse)
    refused.supervise()
    monkeypatch.undo()
    assert (refused.crashes, refused.exit_code) == (1, 1)
    assert "the server" in refused.log_file.read_text()
    assert to_its_end(child("exit", "0")) == 0


def test_a_child_finds_imported_what_it_will_need(
    server: ForkServerClient, child: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    assert not child_description(child, tmp_path / "before")["colorsys"]
    path = tmp_path / "description"
    with_modules = ChildProcess(
        server, "child", PROGRAM, ["describe", str(path)], tmp_path / "log", 0, modules=["colorsys"]
    )
    assert to_its_end(with_modules) == 0
    assert json.loads(path.read_text())["colorsys"]


def test_a_module_that_is_missing_fails_the_process_that_needs_it(
    server: ForkServerClient, child: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    log_file = tmp_path / "log"
    missing = ChildProcess(server, "child", PROGRAM, ["exit", "0"], log_file, 0, modules=["no_such_module"])
    assert to_its_end(missing) == 1
    assert "no_such_module" in log_file.read_text()
    assert to_its_end(child("exit", "0")) == 0


def _refuse(*_arguments: object) -> int:
    raise StartFailed("the server has no more processes")


@pytest.mark.usefixtures("light_servers")
def test_a_thread_that_the_interpreter_brings_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["import threading", "threading.Thread(target=threading.Event().wait, daemon=True).start()"]
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    first_on_path(monkeypatch, tmp_path)
    with ForkServerClient("tests") as server, pytest.raises(FedsiloError, match="sitecustomize"):
        to_its_end(ChildProcess(server, "child", PROGRAM, ["exit", "0"], tmp_path / "log", 1))
