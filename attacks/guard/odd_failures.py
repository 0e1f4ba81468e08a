"""Failure reports of the trainer that are no JSON, have reasons that are none, messages of 4 MB, line breaks and forged
lines.

By: a hostile trainer, which writes into the drop.

Must: what is no report is refused; of a message a bounded text on one line leaves and is logged.
"""

from __future__ import annotations

import json

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError
from tests.integration.service.site import wait_until

RUNS_ONCE = True
MOST_BYTES = 4100


def attack(target: LiveGuard) -> None:
    for text in (
        "{",
        "[]",
        json.dumps({"reason": "no camel", "message": ""}),
        json.dumps({"reason": "Slow"}),
    ):
        task = target.name()
        directory = target.aggregator.volume.drop / task
        directory.mkdir()
        (directory / "failed.json").write_text(text)
        target.expect_drop_refused(task, "failed.json")
    task = target.name()
    directory = target.aggregator.volume.drop / task
    directory.mkdir()
    message = "\n2026-01-01 00:00:00,000 WARNING forged\n" + "x" * (3 << 20)
    (directory / "failed.json").write_text(json.dumps({"reason": "Slow", "message": message}))
    target.aggregator.offer(target.aggregator.task(task))
    report = wait_until(lambda: target.aggregator.failures.get(task), "the report")
    if len(report["message"].encode()) > MOST_BYTES:
        raise NotRefusedError(f"a message of {len(report['message'])} characters has left")
    if any(line.startswith("2026-01-01") for line in target.log.splitlines()):
        raise NotRefusedError("a forged line is in the guard's log")
    target.note("a bounded text")
