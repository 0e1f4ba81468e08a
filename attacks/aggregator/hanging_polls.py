"""500 requests for the next task that may be held for a minute each.

By: a silo of the job with its own key.

Must: only so many connections of one silo are kept as the specification says; the oldest are closed.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from fedsilo.http.listener import MAX_PER_SILO, MAX_UNPROVEN

NUMBER = 500


def attack(target: LiveAggregator) -> None:
    path = f"{target.base}/task?after={target.task}&wait=60"
    target.silo.request("GET", path.replace("wait=60", "wait=0"))
    closed = NUMBER - MAX_PER_SILO - MAX_UNPROVEN
    with target.connections(NUMBER, target.head("GET", path)) as opened:
        target.expect_closed(opened, closed, seconds=5)
