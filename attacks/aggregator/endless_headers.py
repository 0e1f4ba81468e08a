"""A request line, a header and a list of headers that never end, as fast as the connection takes them.

By: a stranger without a key.

Must: refused after some kilobytes, and the connection is closed; nothing is collected.
"""

from __future__ import annotations

import contextlib

from attacks.live_aggregator import LiveAggregator

SENT_BYTES = 8 << 20


def attack(target: LiveAggregator) -> None:
    for begin, piece in (
        (b"GET /", b"a" * 65536),
        (b"GET / HTTP/1.1\r\nX: ", b"a" * 65536),
        (b"GET / HTTP/1.1\r\n", b"X: a\r\n" * 10_000),
    ):
        with target.connect() as connection:
            connection.sendall(begin)
            with contextlib.suppress(OSError):
                for _ in range(SENT_BYTES // len(piece)):
                    connection.sendall(piece)
            target.expect_closed([connection], 1, seconds=5)
