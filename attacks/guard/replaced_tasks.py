"""Every request for a task is answered at once with a new one, rightly signed, that replaces the one before.

By: a hostile aggregator with the job's task key.

Must: the guard asks more and more slowly, up to every two seconds; nothing leaves, for no trainer answers.
"""

from __future__ import annotations

import time

from attacks.live_guard import LiveGuard, answer
from attacks.programs import NotRefusedError
from fedsilo.wire import seal_task

RUNS_ONCE = True
SECONDS = 6.0
MOST_REQUESTS = 60
"""Most requests that the guard sends for tasks and their blobs."""


def attack(target: LiveGuard) -> None:
    aggregator = target.aggregator
    before = target.requests
    with target.answering(
        lambda request: (
            "/task?" in request.path
            and answer(request, 200, seal_task(aggregator.task(target.name()), aggregator.key))
        )
    ):
        target.wake()
        time.sleep(SECONDS)
    asked = target.requests - before
    target.note("asked", asked)
    if asked > MOST_REQUESTS:
        raise NotRefusedError(f"the guard asked {asked} times in {SECONDS:g} s")
