"""Another program, run so that it never outlives the block that uses it, whenever this process is interrupted."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

POLL_SECONDS = 0.5
"""Time after which an interruption is noticed at the latest."""


@contextmanager
def run_program(
    command: Sequence[str], *, stdin: int | None = None, stderr: int | IO[bytes] = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, its standard output in a pipe; killed at the end of the block if it still runs."""
    process = None
    try:
        with _interruptions_deferred():
            process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr)
        yield process
    finally:
        if process is not None:
            process.kill()
            with process:
                pass


def output(process: subprocess.Popen[bytes], limit: int) -> Iterator[bytes]:
    """The program's output, in pieces of so many bytes at most, as they come.

    A signal that arrives just before a read blocks would be looked at when that read returns, which may be never.
    """
    assert process.stdout is not None
    while True:
        ready, _, _ = select.select([process.stdout], [], [], POLL_SECONDS)
        if ready:
            piece = os.read(process.stdout.fileno(), limit)
            if not piece:
                return
            yield piece


@contextmanager
def _interruptions_deferred() -> Iterator[None]:
    """Interruptions take effect after the block: within `Popen` one would leave a program that nobody knows of."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where no signal is handled
        return
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for one in came:
        signal.raise_signal(one)
