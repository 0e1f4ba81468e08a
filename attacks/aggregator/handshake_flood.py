"""Connections without a TLS handshake, with half of one, and with bytes that are none, 1,500 at once.

By: a stranger without a key.

Must: of those without a proof only a fixed number is kept; the oldest make room.
"""

from __future__ import annotations

import contextlib
import socket
import time

from attacks.live_aggregator import LiveAggregator
from attacks.live_service import is_closed
from attacks.programs import NotRefusedError
from fedsilo.http.listener import MAX_UNPROVEN

NUMBER = 1500
BEGINNINGS = (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n")


def attack(target: LiveAggregator) -> None:
    opened = []
    for number in range(NUMBER):
        connection = socket.create_connection(("127.0.0.1", target.site.port))
        with contextlib.suppress(OSError):
            connection.sendall(BEGINNINGS[number % len(BEGINNINGS)])
        opened.append(connection)
    end = time.monotonic() + 2
    closed = sum(is_closed(connection, end) for connection in opened)
    for connection in opened:
        connection.close()
    target.note("closed", closed)
    if closed < NUMBER - MAX_UNPROVEN:
        raise NotRefusedError(f"{closed} of {NUMBER} connections were closed")
