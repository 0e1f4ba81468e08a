"""Tasks whose names are paths, hidden, empty of letters, or those of files that the volume uses itself.

By: a hostile aggregator with the job's task key.

Must: refused as `malformed`, recorded in the audit log; no file of that name appears.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    for name in (
        "../../../guard/key",
        "/etc/cron.d/job",
        "...",
        ".",
        "a/b",
        "signature.json",
        "personal.safetensors",
    ):
        target.expect_untrusted("malformed", target.aggregator.task(name))
