"""20,000 requests in one piece over each of two connections, without waiting for an answer and without reading any.

By: a stranger without a key.

Must: the aggregator reads no further than it answers; each request that it takes is refused as `wrong-job`.
"""

from __future__ import annotations

import contextlib
import time

from attacks.live_aggregator import LiveAggregator

REQUESTS = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 20_000

SECONDS = 1.0
"""Time that the aggregator gets to read on."""


def attack(target: LiveAggregator) -> None:
    with target.connections(2) as opened:
        for connection in opened:
            connection.settimeout(1)
            with contextlib.suppress(OSError):
                connection.sendall(REQUESTS)
        time.sleep(SECONDS)
        for connection in opened:
            connection.settimeout(10)
            target.expect_refused(connection, "wrong-job")
