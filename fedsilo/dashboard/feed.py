"""The present scene, and who waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fedsilo.dashboard.scene import Scene


class Feed:
    """Counts changes of a scene, so that many can wait for the next one.

    :param look: gives the scene as it is now.
    """

    def __init__(self, look: Callable[[], Scene]) -> None:
        self.look = look
        self.version = 0
        self.watchers = 0
        """Requests that wait."""
        self._changed = asyncio.Event()

    def stir(self) -> None:
        """Say that the scene may have changed; in the loop's own thread."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer(self, version: int, seconds: float) -> bool:
        """Wait until the scene is newer than that version; whether it is after so many seconds."""
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
