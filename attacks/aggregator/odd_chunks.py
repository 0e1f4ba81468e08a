"""Chunked bodies without a length, of 10^18 bytes, with a length of 10,000 digits, with extensions of megabytes, with
endless trailers.

By: a silo of the job with its own key.

Must: refused, or the connection is closed; the task's upload stays at offset 0.
"""

from __future__ import annotations

import contextlib

from attacks.live_aggregator import LiveAggregator

BODIES = (
    b"no length\r\n",
    b"de0b6b3a7640000\r\n" + bytes(100) + b"\r\nx\r\n",
    b"f" * 10_000 + b"\r\n",
    b"1;" + b"a" * (4 << 20) + b"\r\nx\r\n",
    b"0\r\n" + b"X: a\r\n" * 500_000,
    b"-1\r\n\r\n",
)


def attack(target: LiveAggregator) -> None:
    path = f"{target.base}/updates/{target.task}"
    for body in BODIES:
        headers = {
            "Transfer-Encoding": "chunked",
            "Upload-Offset": "0",
            "Upload-Length": "100",
            "Upload-Digest": "0" * 64,
        }
        with target.connect() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(target.head("PATCH", path, headers) + body)
            target.expect_closed([connection], 1, seconds=3)
    target.expect_nothing_kept()
