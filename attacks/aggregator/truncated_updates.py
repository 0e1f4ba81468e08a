"""Updates that end in their header, in their signature, in a block, and before the last byte; and ones with bytes after
their end.

By: a silo of the job with its own key.

Must: refused as `truncated` or `too-long`; the task's upload stays at offset 0.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    update, task = target.update(), target.task
    for length in (1, 60, 300, len(update) // 2, len(update) - 1):
        target.expect("truncated", target.silo.patch(task, update[:length]))
    target.expect("too-long", target.silo.patch(task, update + b"rows of a table"))
    target.expect_nothing_kept()
