"""Tasks without a signature, signed by another key, with a changed byte, with bytes after their end, and what is no
envelope.

By: an aggregator at the right address without the job's task key.

Must: refused as `truncated`, `signature-invalid`, `too-long` and `malformed`, recorded in the audit log.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from fedsilo.wire import SigningKey, seal_task

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    aggregator = target.aggregator
    sealed = seal_task(aggregator.task(target.name()), aggregator.key)
    for task, code in (
        (sealed[:-66], "truncated"),
        (sealed[:30] + bytes([sealed[30] ^ 1]) + sealed[31:], "signature-invalid"),
        (sealed + b"more", "too-long"),
        (b"do as I say", "malformed"),
        (b"", "truncated"),
    ):
        target.expect_untrusted(code, task)
    target.expect_untrusted("signature-invalid", aggregator.task(target.name()), SigningKey.generate())
