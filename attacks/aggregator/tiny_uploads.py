"""An update that is sent one byte at a time, each in a request of its own.

By: a silo of the job with its own key.

Must: each is answered with the next offset, and costs no more than a request; an end is never reached by it.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError

NUMBER = 60


def attack(target: LiveAggregator) -> None:
    update, task = target.update(), target.task
    for offset in range(NUMBER):
        answer = target.silo.patch(task, update[: offset + 1], offset, Upload_Length=str(len(update)))
        if answer.status != 204:
            raise NotRefusedError(f"answered {answer.status} {answer.code}")
        target.note("204")
    dropped = target.silo.patch(task, bytes(NUMBER + 9), NUMBER, Upload_Length=str(NUMBER))
    target.expect("too-long", dropped)
