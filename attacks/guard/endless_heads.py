"""Answers whose head never ends: `100 Continue` for ever, headers without end, one header without end, a status line of
megabytes.

By: a hostile aggregator.

Must: refused after some kilobytes, or the guard goes on waiting without needing memory.
"""

from __future__ import annotations

import contextlib
import time
from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard

RUNS_ONCE = True
HEADS = (
    (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n" * 10_000),
    (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 65536),
    (b"HTTP/1.1 200 ", b"a" * 65536),
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
)
SECONDS = 3.0


def attack(target: LiveGuard) -> None:
    for begin, piece in HEADS:

        def endless(request: BaseHTTPRequestHandler, begin: bytes = begin, piece: bytes = piece) -> bool:
            end = time.monotonic() + SECONDS
            with contextlib.suppress(OSError):
                request.wfile.write(begin)
                while time.monotonic() < end:
                    request.wfile.write(piece)
            request.close_connection = True
            return True

        before = target.requests
        with target.answering(endless):
            target.wake()
            target.wait_for_requests(before + 2)
        target.note("asked again")
