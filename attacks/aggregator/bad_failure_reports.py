"""Failure reports that are empty, no JSON, nested without end, with numbers of 16,000 digits, with unknown and repeated
fields, with reasons that are none, and of 17 KB.

By: a silo of the job with its own key.

Must: refused as `malformed` or `too-long`; the task stays open.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator

BODIES = (
    b"",
    b"\xff",
    b"[]",
    b"[" * 16_000,
    b'{"a":' * 3_000,
    b"1" * 16_000,
    b'{"reason": "Slow"}',
    b'{"reason": 7, "message": ""}',
    b'{"reason": "no camel", "message": ""}',
    b'{"reason": "Slow", "message": 7}',
    b'{"reason": "Slow", "message": NaN}',
    b'{"reason": "Slow", "message": "", "round": 3}',
    b'{"reason": "Slow", "reason": "DataInvalid", "message": ""}',
)


def attack(target: LiveAggregator) -> None:
    for body in BODIES:
        target.expect("malformed", target.silo.fail(target.task, body))
    target.expect("too-long", target.silo.fail(target.task, b"x" * (17 << 10)))
