"""A full disk ends neither aggregator, guard nor trainer: they say so, wait for space and go on where they were.

What is tried again must be safe to repeat, as after a crash: every file is written beside its place and renamed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TypeVar

from fedsilo.files.durable import is_disk_full

log = logging.getLogger("fedsilo.disk")

T = TypeVar("T")

FULL_DISK_SECONDS = 1.0
"""Pause before a full disk is tried again."""

REMINDER_SECONDS = 60.0
"""Interval at which it is said again that the disk is full."""


def when_there_is_space(write: Callable[[], T]) -> T:
    """Write, as often as it takes; blocks meanwhile."""
    wait = _Wait()
    while True:
        try:
            return write()
        except OSError as error:
            wait.note(error)
        time.sleep(FULL_DISK_SECONDS)


async def retry_while_disk_full(
    work: Callable[[], Awaitable[T]],
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> T:
    """Like `when_there_is_space`, for work on an event loop.

    :param waiting: is entered once the disk is full, and left when the work is done or given up.
    """
    wait = _Wait()
    with ExitStack() as stack:
        while True:
            try:
                return await work()
            except OSError as error:
                if wait.note(error):
                    stack.enter_context(waiting())
            await asyncio.sleep(FULL_DISK_SECONDS)


class _Wait:
    """One wait for space, which is logged when it begins and then at intervals."""

    def __init__(self) -> None:
        self._silent_until = 0.0
        self._said = False

    def note(self, error: OSError) -> bool:
        """Log that the disk is full; whether the wait begins with this.

        :raises OSError: the error itself, if it says anything else.
        """
        if not is_disk_full(error):
            raise error
        now = time.monotonic()
        if not self._said or now >= self._silent_until:
            log.warning("the disk is full (%s); going on when there is space", error)
            self._silent_until = now + REMINDER_SECONDS
        begins, self._said = not self._said, True
        return begins
