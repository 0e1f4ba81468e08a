"""A task and a refusal of 64 KB that unpack to 64 MB, as gzip and as deflate.

By: a hostile aggregator.

Must: nothing is unpacked; the guard asks again.
"""

from __future__ import annotations

import gzip
import zlib
from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard, answer

ZEROS = bytes(64 << 20)


def attack(target: LiveGuard) -> None:
    zipped, deflated = gzip.compress(ZEROS), zlib.compress(ZEROS)
    for status, encoding, body in ((200, "gzip", zipped), (200, "deflate", deflated), (400, "gzip", zipped)):

        def packed(
            request: BaseHTTPRequestHandler,
            status: int = status,
            encoding: str = encoding,
            body: bytes = body,
        ) -> bool:
            return answer(request, status, body, **{"Content-Encoding": encoding})

        before = target.requests
        with target.answering(packed):
            target.wake()
            target.wait_for_requests(before + 2)
        target.note("asked again")
