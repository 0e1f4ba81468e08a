"""Every answer sets a hundred cookies of 4 KB.

By: a hostile aggregator.

Must: none is kept, and none is sent back.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError

NUMBER = 100


def attack(target: LiveGuard) -> None:
    sent: list[str] = []

    def set_cookies(request: BaseHTTPRequestHandler) -> bool:
        sent.extend(request.headers.get_all("Cookie", []))
        request.send_response(503)
        for number in range(NUMBER):
            request.send_header("Set-Cookie", f"c{len(sent)}-{number}={'x' * 4000}")
        request.send_header("Content-Length", "0")
        request.end_headers()
        return True

    before = target.requests
    with target.answering(set_cookies):
        target.wake()
        target.wait_for_requests(before + 3)
    if sent:
        raise NotRefusedError("the guard sent a cookie")
    target.note("asked again")
