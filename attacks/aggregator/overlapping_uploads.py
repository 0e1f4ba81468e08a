"""Two connections at once upload the same bytes of one update, and different ones.

By: a silo of the job with its own key.

Must: the newer connection wins and the older is closed or refused as `offset-mismatch`; no byte is written twice.
"""

from __future__ import annotations

import contextlib

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError


def attack(target: LiveAggregator) -> None:
    update, task = target.update(), target.task
    half = len(update) // 2
    with target.silo.begin(task, update) as first, target.silo.begin(task, update) as second:
        first.settimeout(5)
        with contextlib.suppress(OSError):
            second.sendall(update[:half])
            first.sendall(update[:half])
        target.expect_closed([first], 1, seconds=5)
    offset = target.stored_bytes()
    if offset > half:
        raise NotRefusedError(f"of {half} bytes, {offset} were taken")
    answer = target.silo.patch(task, bytes(len(update)), offset, Upload_Length=str(len(update)))
    if answer.status < 300:
        raise NotRefusedError("two uploads became one update")
    target.note(f"{answer.status} {answer.code}")
