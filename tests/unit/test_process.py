"""How a process ends: its exit code, and the last words that Kubernetes reads."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.errors import DataInvalid, FedsiloError, JobFailed, ManifestInvalid
from fedsilo.process import (
    MAX_TERMINATION_BYTES,
    TERMINATION_LOG_VARIABLE,
    Arguments,
    importing_for_good,
    run_until_done,
    run_until_signalled,
    termination_message,
)


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.fixture
def termination_log(tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.write_text("what was there before, and longer than what comes" * 20)
    return path


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataInvalid("north:\nno file"), 3, {"reason": "DataInvalid", "message": "north:\nno file"}),
        (JobFailed("lost"), 4, {"reason": "JobFailed", "message": "lost"}),
        (
            OSError(5, "Input/output error", "/job/state.json"),
            1,
            {
                "reason": "StorageFailed",
                "message": "/job/state.json: Input/output error; look for faults of the disk, or of the volume, in "
                "the system's log",
            },
        ),
        (OSError(98, "in use"), 1, {"reason": "InternalError", "message": "OSError: [Errno 98] in use"}),
        (KeyError("round"), 1, {"reason": "InternalError", "message": "KeyError: 'round'"}),
    ],
)  # fmt: skip
def test_an_error_leaves_its_reason_and_message(
    termination_log: Path, error: Exception, code: int, said: dict[str, str]
) -> None:
    assert run_until_done(raising(error), termination_log) == code
    assert json.loads(termination_log.read_bytes()) == said


@pytest.mark.parametrize(
    ("end", "code"), [(None, 0), (KeyboardInterrupt(), 130), (asyncio.CancelledError(), 143)]
)
def test_an_end_that_is_no_error_leaves_nothing(
    termination_log: Path, end: BaseException | None, code: int
) -> None:
    before = termination_log.read_bytes()
    assert run_until_done((lambda: None) if end is None else raising(end), termination_log) == code
    assert termination_log.read_bytes() == before


def test_where_there_is_no_such_file_none_is_made(tmp_path: Path) -> None:
    assert run_until_done(raising(FedsiloError("x")), tmp_path / "termination-log") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_the_file_outside_of_containers(
    termination_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TERMINATION_LOG_VARIABLE, str(termination_log))
    run_until_done(raising(ManifestInvalid("SSL_CERT_FILE=gone: no such file")))
    assert json.loads(termination_log.read_bytes())["message"] == "SSL_CERT_FILE=gone: no such file"


def test_a_file_that_may_not_be_written_changes_no_exit_code(tmp_path: Path) -> None:
    assert run_until_done(raising(DataInvalid("x")), tmp_path) == 3


@given(st.text(), st.integers(1, 5000))
def test_a_termination_message_is_json_and_fits(text: str, times: int) -> None:
    message = text * times
    words = termination_message("QuorumLost", message)
    assert len(words) <= MAX_TERMINATION_BYTES
    said = json.loads(words)
    assert said["reason"] == "QuorumLost"
    # Half of a surrogate pair is no character, and is written as a question mark.
    assert message.encode(errors="replace").decode().startswith(said["message"])
    if len(said["message"]) < len(message):
        assert len(words) > MAX_TERMINATION_BYTES - 16, "cut more than needed"


def test_a_wrong_argument_is_reported_like_any_other_error(
    termination_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        Arguments(prog="fedsilo-guard").parse_args(["--new"])

    assert run_until_done(body, termination_log) == 2
    said = json.loads(termination_log.read_bytes())
    assert said == {"reason": "ManifestInvalid", "message": "fedsilo-guard: unrecognized arguments: --new"}
    assert capsys.readouterr().err.startswith("usage: fedsilo-guard")


def test_sigterm_ends_a_process_that_computes() -> None:
    program = (
        "from fedsilo.process import exit_on_sigterm\nexit_on_sigterm()\nprint('ready', flush=True)\n"
        "while True: sum(range(1000))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_has_no_end_in_order(number: signal.Signals) -> None:
    steps = []

    async def run_forever() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            steps.append("put in order")

    asyncio.run(run_until_signalled(run_forever()))
    assert steps == ["put in order"]


def test_what_is_cancelled_without_a_signal_is_cancelled() -> None:
    async def raise_cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_until_signalled(raise_cancelled()))


def test_the_end_of_a_process_does_not_wait_for_the_collector() -> None:
    code = """
import gc, fedsilo.process as process
for _ in range(3):
    assert process.run_until_done(lambda: None) == 0
gc.disable()
class Garbage:
    def __del__(self):
        print("collected")
garbage = Garbage()
garbage.itself = garbage
del garbage
print("end")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "end\n"


def test_the_collector_goes_on_after_imports_as_before() -> None:
    assert gc.isenabled()
    with pytest.raises(ImportError), importing_for_good():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with importing_for_good():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_passes_over_what_was_imported() -> None:
    code = """
import gc
from fedsilo.process import importing_for_good
with importing_for_good():
    pass
assert gc.get_freeze_count() == 0
with importing_for_good():
    import fedsilo.api
print(gc.get_freeze_count())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ended.stdout) > 10_000
