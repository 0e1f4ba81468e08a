"""500 uploads of one task that send their head and then nothing.

By: a silo of the job with its own key.

Must: the newest connection closes the ones before; the silo's own next upload is taken, and the other silo notices
nothing.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator

NUMBER = 500
MAX_OPEN_CONNECTIONS = 20
"""Connections that may remain: those that one silo may have, and some that are just being closed."""


def attack(target: LiveAggregator) -> None:
    headers = {
        "Content-Length": "1000000",
        "Upload-Offset": "0",
        "Upload-Length": "1000000",
        "Upload-Digest": "0" * 64,
    }
    head = target.head("PATCH", f"{target.base}/updates/{target.task}", headers)
    with target.connections(NUMBER, head) as opened:
        target.expect_closed(opened, NUMBER - MAX_OPEN_CONNECTIONS, seconds=5)
        answer = target.silo.patch(target.task, bytes(100), Upload_Length="1000")
    target.expect("malformed", answer)
    target.expect_nothing_kept()
