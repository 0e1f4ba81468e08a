"""Refusals that are no problem documents, with codes that do not exist, details of megabytes, line breaks, and JSON
nested without end.

By: a hostile aggregator.

Must: the guard takes none for final, logs a bounded text on one line, and asks again.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard, answer
from attacks.programs import NotRefusedError

CODE = "urn:fedsilo:problem:"
BODIES = (
    b"[" * 500_000,
    b"\xff\xfe",
    json.dumps({"type": CODE + "nonsense", "detail": "x"}).encode(),
    json.dumps({"type": CODE + "storage-full", "detail": "x" * 900_000}).encode(),
    json.dumps(
        {"type": CODE + "storage-full", "detail": "a\n2026-01-01 00:00:00,000 WARNING forged"}
    ).encode(),
    json.dumps({"type": [CODE], "detail": {"a": 1}}).encode(),
)
LONGEST_LINE_BYTES = 6000


def attack(target: LiveGuard) -> None:
    for body in BODIES:

        def refuse(request: BaseHTTPRequestHandler, body: bytes = body) -> bool:
            return answer(request, 503, body)

        before = target.requests
        with target.answering(refuse):
            target.wake()
            target.wait_for_requests(before + 2)
        target.note("asked again")
    lines = target.log.splitlines()
    if any(line.endswith("WARNING forged") and line.startswith("2026-01-01") for line in lines):
        raise NotRefusedError("a forged line is in the guard's log")
    if max(map(len, lines)) > LONGEST_LINE_BYTES:
        raise NotRefusedError("a line of the guard's log is longer than it may be")
