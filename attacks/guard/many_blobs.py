"""A task with 10,000 blobs of no bytes, each of another digest.

By: a hostile aggregator with the job's task key.

Must: the first that does not match ends it, with a report.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from fedsilo.wire import BlobLink

RUNS_ONCE = True
NUMBER = 10_000


def attack(target: LiveGuard) -> None:
    blobs = tuple(BlobLink(f"b{n}", f"{n:064x}", 0) for n in range(NUMBER))
    task = target.aggregator.task(target.name(), blobs=blobs)
    target.expect_reported(task, "digest-mismatch", "ProtocolProblem")
