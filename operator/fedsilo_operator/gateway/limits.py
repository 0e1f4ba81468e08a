"""What one silo may ask of the gateway, so that none takes the service away from the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedsilo.errors import Problem
from fedsilo.http.listener import ConnectionStore

SILENCE_SECONDS = 90.0
"""Longest time in which no byte of a request or answer moves; an aggregator answers a long poll after 60 s."""


@dataclass(frozen=True)
class Limits:
    """What each silo may ask of the gateway.

    :param open_requests: requests under way at once, over all of its jobs.
    :param requests_per_second: on average.
    :param burst: requests that may come at once after a pause.
    :param body_bytes: largest body of one request; an aggregator's own limit follows from the job's model.
    """

    open_requests: int = 32
    requests_per_second: float = 20.0
    burst: int = 100
    body_bytes: int = 64 << 30


class RequestAccount:
    """Counts each silo's requests against the limits.

    :param now: seconds of a clock that never goes back.
    :ivar connections: those of the service, if a `Listener` accepts them.
    """

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.open: Counter[str] = Counter()
        # A request takes a connection: with fewer, the silo could not have all of its requests.
        self.connections = ConnectionStore(per_silo=limits.open_requests)
        self._now = now
        self._allowances: dict[str, tuple[float, float]] = {}  # silo -> requests left, as of when

    @contextmanager
    def request(self, silo: str, connection: object = None) -> Iterator[None]:
        """A request under way, from its proof to the end of its answer.

        :param connection: that it came over; None if the proof is not by a key that is known.
        :raises Problem: `too-many-requests`.
        """
        if connection is not None:
            self.connections.prove(connection, silo)
        self._spend(silo)
        if self.open[silo] >= self.limits.open_requests:
            raise Problem(
                "too-many-requests",
                f"silo {silo} has {self.open[silo]} requests under way, as many as it may have; end one of them",
            )
        self.open[silo] += 1
        try:
            yield
        finally:
            self.open[silo] -= 1
            if not self.open[silo]:
                del self.open[silo]

    def _spend(self, silo: str) -> None:
        now, limits = self._now(), self.limits
        left, since = self._allowances.get(silo, (float(limits.burst), now))
        left = min(float(limits.burst), left + (now - since) * limits.requests_per_second)
        if left < 1:
            self._allowances[silo] = left, now
            raise Problem(
                "too-many-requests",
                f"silo {silo} sends more than {limits.requests_per_second:g} requests a second; wait between them",
            )
        self._allowances[silo] = left - 1, now
