"""The present snapshot, and the requests that wait for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from fedsilo.dashboard.snapshot import PageSnapshot

TakenSnapshot = TypeVar("TakenSnapshot", bound=PageSnapshot)


class Feed(Generic[TakenSnapshot]):
    """Counts changes of a snapshot, so that many can wait for the next one.

    :param take: gives the snapshot as it is now.
    """

    def __init__(self, take: Callable[[], TakenSnapshot]) -> None:
        self.take = take
        self.version = 0
        self.watchers = 0
        """Requests that wait."""
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Note that the snapshot may have changed; to be called in the loop's own thread."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer(self, version: int, seconds: float) -> bool:
        """Wait at most so many seconds until the snapshot is newer than that version; whether it is."""
        self.watchers += 1
        try:
            async with asyncio.timeout(seconds):
                while self.version == version:
                    await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self.watchers -= 1
        return True
