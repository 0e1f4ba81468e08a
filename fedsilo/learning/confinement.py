"""What surrounds a job's own code while it trains, so that the process that called it can go on."""

from __future__ import annotations

import io
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import numpy as np
import torch
from typing_extensions import override

from fedsilo.errors import MethodError

LONGEST_LINE_CHARACTERS = 2000
"""Characters of a line in the log; a longer one becomes several."""

EXIT_OF_CHILD = 7
"""With which a forked child ends that came back from the function."""

SECONDS_BETWEEN_INTERRUPTIONS = 1.0

MOST_INTERRUPTIONS = 30
"""So often code whose time is over is interrupted before its process is ended."""

_end_process = os._exit


class TimeLimitError(BaseException):
    """Raised in code whose time is over; no `except Exception` stops it."""


@contextmanager
def limited_to(seconds: float, what: str) -> Iterator[None]:
    """Raise `TimeLimitError` inside after so many seconds, and again every second while it is caught there.

    Code that goes on all the same ends this process with a line: nothing else can stop it. Only in the main thread,
    which is the one that a signal interrupts, also while it sleeps or waits for a lock; in any other thread there is
    no limit.

    :param what: runs inside, for the message.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over, interruptions = False, 0

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal over, interruptions
        if over:
            return
        interruptions += 1
        if interruptions > MOST_INTERRUPTIONS:
            over = True  # the next signal may come before the process has ended
            problem = f"did not return within {seconds:g} s, and goes on when it is interrupted"
            os.write(2, f"fedsilo: {what}: {problem}; let it do less, and catch no BaseException\n".encode())
            _end_process(MethodError.exit_code)
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, SECONDS_BETWEEN_INTERRUPTIONS)
    try:
        try:
            yield
        finally:
            over = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def only_in_this_process(log: logging.Logger, what: str) -> Iterator[None]:
    """End a forked child that comes out of the block, returning or raising: it would go on as a second trainer.

    Inside, `os._exit` ends a child as ever, but raises `SystemExit` in this thread, whose process has more to do.
    """
    process, thread = os.getpid(), threading.get_ident()

    def exit_here(status: int) -> NoReturn:
        if os.getpid() != process or threading.get_ident() != thread:
            _end_process(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = exit_here
    try:
        yield
    finally:
        os._exit = _end_process
        if os.getpid() != process:
            log.error(
                "%s: forked, and the child process came back from it; the child is ended: end it with os._exit",
                what,
            )
            _end_process(EXIT_OF_CHILD)


@contextmanager
def isolated_torch_state(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the random generators inside the block; afterwards these and PyTorch's settings are what they were."""
    python, numpy = random.getstate(), np.random.get_state()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    deterministic, gradients = torch.get_deterministic_debug_mode(), torch.is_grad_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
            torch.set_deterministic_debug_mode(deterministic)
            torch.set_grad_enabled(gradients)


class LoggedLines(io.TextIOBase):
    """A text stream whose lines are logged; a progress bar's returns begin a new line."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._open = ""
        self._logging = False  # also where foreign code has made this stream one that logs go to

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, text: str) -> int:
        """Log every line that is complete."""
        *lines, rest = (self._open + text).replace("\r", "\n").split("\n")
        for line in lines:
            self._put(line)
        if len(rest) > LONGEST_LINE_CHARACTERS:
            self._put(rest)
            rest = ""
        self._open = rest
        return len(text)

    @override
    def close(self) -> None:
        """Log what has no end of line."""
        self._put(self._open)
        self._open = ""

    def _put(self, line: str) -> None:
        if line.strip() and not self._logging:
            self._logging = True
            for start in range(0, len(line), LONGEST_LINE_CHARACTERS):
                self._log.info("%s", line[start : start + LONGEST_LINE_CHARACTERS])
            self._logging = False
