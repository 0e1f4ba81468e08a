"""An upload of 10^17 bytes that begins like an honest one and goes on at full speed.

By: a silo of the job with its own key.

Must: refused at the first byte beyond the contract; nothing of it stays on the disk.
"""

from __future__ import annotations

import contextlib

from attacks.live_aggregator import LiveAggregator
from tests.updates import digest_of

PIECE = bytes(1 << 18)


def attack(target: LiveAggregator) -> None:
    update = target.update()
    headers = {
        "Content-Length": str(10**17),
        "Upload-Offset": "0",
        "Upload-Length": str(10**17),
        "Upload-Digest": digest_of(update),  # the honest one: only its length is untrue
    }
    with target.connect() as connection:
        connection.sendall(target.head("PATCH", f"{target.base}/updates/{target.task}", headers))
        with contextlib.suppress(OSError):
            connection.settimeout(0.5)
            connection.sendall(update)
            for _ in range(40):
                connection.sendall(PIECE)
        connection.settimeout(5)
        target.expect_refused(connection, "too-long")
    target.expect_nothing_kept()
