"""Tasks whose blobs have 2^62 bytes, in one and in 100.

By: a hostile aggregator with the job's task key.

Must: refused as `PolicyRefused` before anything is fetched; the silo's disk stays as it was.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from fedsilo.wire import BlobLink

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    for number in (1, 100):
        blobs = tuple(BlobLink(f"b{n}", f"{n:064x}", 1 << 55) for n in range(number))
        task = target.aggregator.task(target.name(), blobs=blobs)
        target.expect_reported(task, "its blobs have")
