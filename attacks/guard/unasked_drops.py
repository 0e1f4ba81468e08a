"""Drops for tasks that nobody has given, a thousand of them.

By: a hostile trainer, which writes into the drop.

Must: nothing of them leaves, and nothing of them is recorded.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError

RUNS_ONCE = True
NUMBER = 1000


def attack(target: LiveGuard) -> None:
    for number in range(NUMBER):
        target.aggregator.drop(f"r00099-unasked{number}")
    target.answer_honestly()
    if any("unasked" in line for line in (*target.aggregator.requests, *map(str, target.aggregator.audit()))):
        raise NotRefusedError("the guard has used a drop that nobody asked for")
    target.note("stays in the silo", NUMBER)
