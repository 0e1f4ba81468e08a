"""Ctrl-C and SIGTERM, acted on only where a run can be left in order: never while a process is being started."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest(BaseException):
    """The run was asked to end.

    :param number: the signal that asked for it.
    """

    def __init__(self, number: int) -> None:
        super().__init__("interrupted" if number == signal.SIGINT else "terminated")
        self.number = number

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells say it."""
        return 128 + self.number


@contextmanager
def stopping() -> Iterator[Callable[[], None]]:
    """Remember SIGINT and SIGTERM; the function that it gives raises `StopRequest` once one has come."""
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    def check() -> None:
        if received:
            raise StopRequest(received[0])

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
