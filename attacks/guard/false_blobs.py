"""Blobs of no bytes, and of other bytes than their digest names.

By: a hostile aggregator with the job's task key.

Must: fetched once, refused as `digest-mismatch` and reported; the trainer never sees them.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from fedsilo.wire import BlobLink

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    length = target.aggregator.blob.length
    for digest, size in (("0" * 64, 0), ("1" * 64, length)):
        task = target.aggregator.task(target.name(), blobs=(BlobLink("model", digest, size),))
        target.expect_reported(task, "digest-mismatch", "ProtocolProblem")
