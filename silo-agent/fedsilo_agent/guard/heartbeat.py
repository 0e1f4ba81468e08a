"""What a guard says of itself to the aggregator while it cannot go on: one word, now and then, and that it is over.

A trainer can fill the volume that it shares with the guard, so nothing but a word of a closed list leaves, and not more
often than every `REPEAT_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fedsilo.api.conditions import GuardState
from fedsilo.errors import Problem
from fedsilo_agent.guard.client import AggregatorClient

log = logging.getLogger("fedsilo.guard")

REPEAT_SECONDS = 15.0
"""Interval at which it is said again, since an aggregator that is restarted has forgotten it."""


class Heartbeat:
    """The state of one guard, told to the aggregator for as long as there is one to tell."""

    def __init__(self, client: AggregatorClient) -> None:
        self._client = client
        self._waits: Counter[GuardState] = Counter()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> GuardState | None:
        """What keeps the guard from going on; None while nothing does."""
        return next((state for state in GuardState if self._waits[state] > 0), None)

    @contextmanager
    def telling(self, state: GuardState) -> Iterator[None]:
        """Have the aggregator know of a state until the end of the block."""
        self._waits[state] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            self._waits[state] -= 1

    def stop(self) -> None:
        """End with the guard, whatever was not told yet."""
        if self._task is not None:
            self._task.cancel()

    async def _tell(self) -> None:
        try:
            while (state := self.state) is not None:
                await self._client.tell_state(state)
                await asyncio.sleep(REPEAT_SECONDS)
            await self._client.tell_state(None)
        except Problem as problem:
            log.warning("the aggregator does not take what keeps this guard from going on: %s", problem)
