"""Tasks of another job, for another silo and of another specification, rightly signed.

By: a hostile aggregator with the job's task key.

Must: refused as `wrong-job`, `wrong-sender` and `task-mismatch`, recorded in the audit log; the trainer never sees
them.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    for changes, code in (
        ({"job": "11111111-2222-3333-4444-555555555555"}, "wrong-job"),
        ({"silo": "silo-south/south"}, "wrong-sender"),
        ({"spec_digest": bytes(32)}, "task-mismatch"),
    ):
        target.expect_untrusted(code, target.aggregator.task(target.name(), **changes))
