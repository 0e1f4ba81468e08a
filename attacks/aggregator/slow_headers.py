"""200 connections that send the head of a request byte by byte and never finish it.

By: a stranger without a key.

Must: all are closed ten seconds after they began, however often they send a byte.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from attacks.live_service import trickle
from fedsilo.http.listener import UNPROVEN_SECONDS

RUNS_ONCE = True
NUMBER = 200


def attack(target: LiveAggregator) -> None:
    with target.connections(NUMBER, b"GET / HTTP/1.1\r\nHost: ") as opened:
        trickle(opened, UNPROVEN_SECONDS + 2)
        target.expect_closed(opened, NUMBER)
