"""Statuses and offers of 300 KB, nested without end, with numbers of 16,000 digits, with fields twice, of other agents.

By: a silo with its own key.

Must: refused as `too-long`, `malformed`, `signature-invalid` or `unknown-agent`; no status is written.
"""

from __future__ import annotations

import time

from attacks.live_gateway import JOB, LiveGateway
from attacks.programs import NotRefusedError

REFUSAL_CODES = {"too-long", "malformed", "signature-invalid", "wrong-sender", "unknown-agent"}
CONTENTS = (
    b"x" * (300 << 10),
    b"[" * 100_000,
    b'{"uid":' * 20_000,
    b'{"uid": ' + b"9" * 16_000 + b', "status": {}}',
    b'{"uid": "a", "uid": "b", "status": {}}',
    b'{"uid": "a", "status": {"phase": {}}}',
)


def attack(target: LiveGateway) -> None:
    for name in ("offer", f"agents/{JOB}-north/status", f"agents/{JOB}-south/status"):
        for content in CONTENTS:
            answer = target.put(f"{target.silo_path()}/{name}", content)
            if answer.code not in REFUSAL_CODES:
                raise NotRefusedError(f"answered {answer.status} {answer.code} to {content[:20]!r}")
            target.note(f"{answer.status} {answer.code}")
    time.sleep(1)
