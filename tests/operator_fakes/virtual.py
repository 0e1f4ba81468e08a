"""An event loop whose time passes at once: a sleep of an hour costs nothing, and the same test is always the same."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")


class _Clock(selectors.DefaultSelector):
    """When nothing else can happen, the time of the next timer has come."""

    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            # Only a thread or a socket could wake the loop now; give it a moment before calling it a deadlock.
            ready = super().select(1)
            if not ready:
                raise RuntimeError("everything waits, and nothing is left that could happen")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at time 0."""

    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)

    @override
    def time(self) -> float:
        """Seconds since the loop was made, sleeps included."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
