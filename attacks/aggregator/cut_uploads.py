"""Uploads whose connection is cut after no byte, after one, in the middle, and one byte before the end.

By: a silo of the job with its own key, or its network.

Must: counted as `truncated`; what was kept can be continued, and the same update is not accepted twice.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError


def attack(target: LiveAggregator) -> None:
    update, task = target.update(), target.task
    for cut in (0, 1, len(update) // 2, len(update) - 1):
        offset = target.stored_bytes()
        with target.silo.begin(task, update, offset) as connection:
            connection.sendall(update[offset : max(cut, offset)])
        target.note("400 truncated")
    offset = target.stored_bytes()
    if offset >= len(update):
        raise NotRefusedError(f"an upload that was cut is complete at {offset}")
    target.forget_upload()
