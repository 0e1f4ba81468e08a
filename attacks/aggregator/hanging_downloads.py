"""200 downloads of the model of which nothing is read.

By: a silo of the job with its own key.

Must: only so many connections of one silo are kept as the specification says; the oldest are closed.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from fedsilo.http.listener import MAX_PER_SILO

NUMBER = 200


def attack(target: LiveAggregator) -> None:
    path = f"{target.base}/blobs/{target.fetched_task.task.blobs[0].digest}"
    closed = NUMBER - MAX_PER_SILO - 4
    with target.connections(NUMBER, target.head("GET", path)) as opened:
        target.expect_closed(opened, closed, seconds=10)
