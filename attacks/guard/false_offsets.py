"""Answers to an honest upload: an offset beyond its end, negative, of 40 digits, none, and that it is never whole.

By: a hostile aggregator.

Must: the guard keeps its update, tries again at most every two seconds, and sends the same bytes when it can.
"""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard, answer
from attacks.programs import NotRefusedError

RUNS_ONCE = True
SECONDS = 1.5
MOST_REQUESTS = 40


def attack(target: LiveGuard) -> None:
    for offset in ("99999999999", "-1", "9" * 40, "", "0"):

        def refuse(request: BaseHTTPRequestHandler, offset: str = offset) -> bool:
            if request.command == "HEAD":
                return answer(request, 200, b"", **{"Upload-Complete": "?0", "Upload-Offset": offset})
            if request.command == "PATCH":
                request.rfile.read(int(request.headers["Content-Length"]))
                return answer(request, 204, b"", **{"Upload-Offset": "0"})
            return False

        task, before = target.name(), target.requests
        with target.answering(refuse):
            target.aggregator.drop(task)
            target.aggregator.offer(target.aggregator.task(task))
            time.sleep(SECONDS)
        target.aggregator.wait_acknowledged(task)
        asked = target.requests - before
        if asked > MOST_REQUESTS:
            raise NotRefusedError(f"the guard asked {asked} times")
        target.note("sent when it could")
