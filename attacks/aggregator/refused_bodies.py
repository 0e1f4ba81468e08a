"""Uploads without a proof whose bodies go on after the refusal, at full speed, over four connections.

By: a stranger without a key.

Must: refused as `malformed`; the connection is closed within ten seconds, and nothing of the bodies is kept.
"""

from __future__ import annotations

import contextlib
import threading
import time

from attacks.live_aggregator import LiveAggregator

PIECE = bytes(1 << 18)
SECONDS = 2.0


def attack(target: LiveAggregator) -> None:
    head = target.head(
        "PATCH", f"{target.base}/updates/r00001-train-north", {"Content-Length": "1000000000000"}, "Fedsilo A"
    )
    with target.connections(4, head) as opened:
        end = time.monotonic() + SECONDS

        def send(number: int) -> None:
            with contextlib.suppress(OSError):
                while time.monotonic() < end:
                    opened[number].sendall(PIECE)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(len(opened))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for connection in opened:
            target.expect_refused(connection, "malformed")
