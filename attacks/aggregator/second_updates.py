"""A second, different update for a task that was answered, rightly signed, while the round is open and after it.

By: a silo of the job with its own key.

Must: refused as `already-accepted`; the first stays, and is confirmed when it is sent again.
"""

from __future__ import annotations

import dataclasses

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError
from tests.integration.service.client import contents_of, forge, header_of

RUNS_ONCE = True


def attack(target: LiveAggregator) -> None:
    silo, task, update = target.silo, target.task, target.update()
    header = dataclasses.replace(header_of(update), samples=1_000_000)
    second = forge(silo.key, header, contents_of(update))
    silo.patch(task, update)
    target.expect("already-accepted", silo.patch(task, second))
    target.expect("already-accepted", silo.head(task))
    if silo.patch(task, update).status != 200:
        raise NotRefusedError("the accepted update was not confirmed")
    target.other.answer(target.other.fetch_task())
    silo.task(task)
    target.expect("already-accepted", silo.patch(task, second))
