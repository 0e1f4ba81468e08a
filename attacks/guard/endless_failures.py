"""A trainer reports failures without end, one for each of two hundred tasks of a single exchange, each in other words,
and an aggregator that listens gives the tasks, under two hundred names.

By: a hostile trainer, which writes into the drop, and a hostile aggregator with the job's task key.

Must: the first is reported, and of the others no word of the trainer's; after a few reports of the exchange nothing
leaves, and the audit log has every failure.
"""

from __future__ import annotations

import json

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError
from fedsilo_agent.guard.disclosure import REPORTS_PER_EXCHANGE
from tests.integration.service.site import wait_until

RUNS_ONCE = True
TASKS = 200


def attack(target: LiveGuard) -> None:
    aggregator, first = target.aggregator, target.name()
    names = [f"{first}-{number}" for number in range(TASKS)]
    for name in names:
        directory = aggregator.volume.drop / name
        directory.mkdir()
        secret = {"reason": "DataInvalid", "message": f"row of patient {name}: " + "x" * 3000}
        (directory / "failed.json").write_text(json.dumps(secret))
        aggregator.offer(aggregator.task(name))
        wait_until(lambda name=name: target.aggregator.events(name), f"what came of {name}")  # type: ignore[misc]
    told = [aggregator.failures[name] for name in names if name in aggregator.failures]
    words = [report for report in told if "xxx" in report["message"]]
    if len(words) != 1 or len(told) > REPORTS_PER_EXCHANGE:
        raise NotRefusedError(f"{len(told)} reports have left, {len(words)} of them in the trainer's words")
    target.note("reported in the trainer's words")
    target.note("ExchangeRefused", len(told) - 1)
    target.note("on record, and nothing has left", TASKS - len(told))
