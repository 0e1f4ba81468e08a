"""Tasks of 4 MB, and of as many bytes as the connection takes, with a length and in chunks.

By: a hostile aggregator.

Must: nothing beyond 1 MiB is read; the guard says so and asks again.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard, answer, endless


def attack(target: LiveGuard) -> None:
    def large(request: BaseHTTPRequestHandler) -> bool:
        return answer(request, 200, bytes(4 << 20))

    for instead in (large, endless):
        with target.answering(instead):
            before = target.requests
            target.wake()
            target.wait_for_requests(before + 2)
            target.expect_logged("more than 1048576 bytes")
