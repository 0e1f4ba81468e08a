"""Tasks of a step that the method does not declare, and with the contract of none and of another step, rightly signed.

By: a hostile aggregator with the job's task key.

Must: refused as `PolicyRefused`, recorded and reported; the trainer never sees them, and what it dropped stays.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from fedsilo.wire import Contract

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    for changes, words in (
        ({"step": "send_the_data"}, "declares no step"),
        ({"contract": bytes(32)}, "is not"),
        ({"contract": bytes.fromhex(Contract(()).digest())}, "is not"),
        ({"step": "evaluate"}, "is not"),
    ):
        name = target.name()
        target.aggregator.drop(name)
        target.expect_reported(target.aggregator.task(name, **changes), words)
