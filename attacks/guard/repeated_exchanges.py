"""Tasks of a round that the silo has answered, under another name, and with other settings.

By: a hostile aggregator with the job's task key.

Must: refused as `ExchangeRefused`, recorded and reported; nothing leaves twice.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    name = target.name()
    target.answer_honestly()
    target.aggregator.drop(f"{name}-again")
    target.expect_reported(target.aggregator.task(f"{name}-again"), "answered once", "ExchangeRefused")
    target.aggregator.drop(f"{name}-more")
    more = target.aggregator.task(f"{name}-more", settings={"more": 1})
    target.expect_reported(more, "answered once", "ExchangeRefused")
