"""A program that another one runs: whenever that is interrupted, it ends at once and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from fedsilo.cli.cluster.program import output, run_program

ENDLESS_COMMAND = ["sh", "-c", "echo beginning; exec sleep 600"]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Handle SIGINT as at a terminal; what runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_a_program_says_comes_in_pieces_and_whole() -> None:
    said = b"".join(b"%07d\n" % number for number in range(20_000))
    code = "for number in range(20_000): print(f'{number:07}')"
    with run_program([sys.executable, "-c", code], stdin=subprocess.DEVNULL) as process:
        pieces = list(output(process, 1000))
        assert process.wait() == 0
    assert b"".join(pieces) == said
    assert max(map(len, pieces)) <= 1000


def test_what_has_not_ended_ends_with_the_block() -> None:
    with run_program(ENDLESS_COMMAND, stdin=subprocess.DEVNULL) as process:
        assert next(output(process, 100)) == b"beginning\n"
    assert process.returncode == -signal.SIGKILL


def test_an_interruption_while_the_program_is_being_started_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[subprocess.Popen[bytes]] = []

    class InterruptedProcess(subprocess.Popen[bytes]):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)  # type: ignore[call-overload]
            made.append(self)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)  # where Python looks for signals

    monkeypatch.setattr(subprocess, "Popen", InterruptedProcess)
    with pytest.raises(KeyboardInterrupt), run_program(ENDLESS_COMMAND, stdin=subprocess.DEVNULL):
        pytest.fail("it was not interrupted")
    assert [process.returncode for process in made] == [-signal.SIGKILL]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interruption_that_came_just_before_a_read_is_noticed() -> None:
    """One that another thread is given breaks off no read of this one, like one that comes a moment too early."""
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        with run_program(ENDLESS_COMMAND, stdin=subprocess.DEVNULL) as process:
            pieces = output(process, 100)
            assert next(pieces) == b"beginning\n"
            assert other.ident is not None
            later = threading.Timer(0.1, signal.pthread_kill, (other.ident, signal.SIGINT))
            later.start()
            with pytest.raises(KeyboardInterrupt):
                next(pieces)
    finally:
        stop.set()
        other.join()
