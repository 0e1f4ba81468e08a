"""Every request for a task is answered at once with 204.

By: a hostile aggregator.

Must: the guard asks more and more slowly, up to every two seconds.
"""

from __future__ import annotations

import time

from attacks.live_guard import LiveGuard, answer
from attacks.programs import NotRefusedError

RUNS_ONCE = True
SECONDS = 6.0
MOST_REQUESTS = 20


def attack(target: LiveGuard) -> None:
    before = target.requests
    with target.answering(lambda request: answer(request, 204)):
        target.wake()
        time.sleep(SECONDS)
    asked = target.requests - before
    target.note("asked", asked)
    if asked > MOST_REQUESTS:
        raise NotRefusedError(f"the guard asked {asked} times in {SECONDS:g} s")
