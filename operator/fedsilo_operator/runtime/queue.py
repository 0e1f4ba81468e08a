"""The work queue says which objects are to be reconciled, and when.

A key waits at most once and is worked on by one worker at a time; what changes meanwhile makes it wait again. A key
that failed waits longer each time. These are the guarantees of client-go's workqueue.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from fedsilo.backoff import Backoff
from fedsilo_operator.objects import Kind, Ref

RETRIES = Backoff(1.0, 300.0)
"""Wait after failures, seconds."""

JITTER_FRACTION = 0.2
"""Fraction by which a wait varies at random, so that what failed together is not retried together."""

RETRIES_PER_SECOND, BURST = 10.0, 100.0
"""Rate at which keys come back after failures, all keys together."""


@dataclass(frozen=True)
class Key:
    """The object that a controller is to reconcile."""

    kind: Kind
    ref: Ref

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.ref}"


class TokenBucket:
    """A token bucket gives so many tokens at once, then so many per second."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._then = 0.0

    def take(self, now: float) -> float:
        """Take one token of the bucket; returns the seconds until it is there.

        :param now: a monotonic time in seconds.
        """
        self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate) - 1
        self._then = now
        return max(0.0, -self._tokens / self._rate)


class Queue:
    """Keys of one controller, on the event loop's clock.

    :param draw: random numbers from 0 to 1.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: dict[Key, float] = {}
        """When each one began to wait for a worker."""
        self._working: dict[Key, float] = {}
        """When work on each one began."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._bucket = TokenBucket(RETRIES_PER_SECOND, BURST)
        self.added = 0
        self.retried = 0
        """How often a key began to wait for a worker, and how often one was to come back after a failure."""

    def __len__(self) -> int:
        """How many keys wait to be worked on now."""
        return len(self._waiting)

    def longest_running(self) -> float:
        """Seconds for which the longest running worker has been busy with its key; 0 when none is."""
        return asyncio.get_running_loop().time() - min(self._working.values()) if self._working else 0.0

    def add(self, key: Key) -> None:
        """Reconcile it as soon as a worker is free; a timer for later is cancelled."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key not in self._waiting:
            self.added += 1
            self._waiting[key] = asyncio.get_running_loop().time()
            if key not in self._working:
                self._ready.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Reconcile it then, unless something adds it before; of two timers the earlier counts."""
        if key in self._waiting:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(when, self.add, key)

    def retry(self, key: Key, at_least: float = 0.0) -> int:
        """Reconcile it again after a failure; returns how often in a row it has failed now."""
        self.retried += 1
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(RETRIES.longest, max(at_least, RETRIES.pause(failures)))
        wait *= 1 - JITTER_FRACTION + 2 * JITTER_FRACTION * self._draw()
        self.add_after(key, max(wait, self._bucket.take(asyncio.get_running_loop().time())))
        return failures + 1

    def forget(self, key: Key) -> None:
        """Note that it succeeded: the next failure counts as the first."""
        self._failures.pop(key, None)

    async def get(self) -> tuple[Key, float]:
        """The next key, this worker's alone until `mark_done`, and the seconds that it has waited for a worker."""
        key = await self._ready.get()
        since = self._waiting.pop(key)
        self._working[key] = asyncio.get_running_loop().time()
        return key, self._working[key] - since

    def mark_done(self, key: Key) -> None:
        """The worker has finished with it."""
        self._working.pop(key, None)
        if key in self._waiting:
            self._ready.put_nowait(key)
