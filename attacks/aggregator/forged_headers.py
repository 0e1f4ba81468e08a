"""Updates, rightly signed, of another job, task, round, contract and specification, by another key, in the name of
another silo, and replayed from the round before.

By: a silo of the job with its own key, and the key of another silo.

Must: refused with the code that the specification names for each.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from attacks.live_aggregator import LiveAggregator
from tests.integration.service.client import contents_of, forge, header_of

RUNS_ONCE = True


def attack(target: LiveAggregator) -> None:
    before = target.update()
    target.play_round()
    update, silo = target.update(), target.silo
    header, contents = header_of(update), contents_of(update)
    target.expect("wrong-task", silo.patch(target.task, before))
    by_other = forge(target.other.key, header, contents)
    target.expect("signature-invalid", silo.patch(target.task, by_other))
    changes: tuple[tuple[str, Any, str], ...] = (
        ("key_id", "0" * 16, "signature-invalid"),
        ("job", "11111111-2222-3333-4444-555555555555", "wrong-job"),
        ("task", "r00009-train-south", "wrong-task"),
        ("round", 1_000_000, "wrong-round"),
        ("sender", target.other.silo, "wrong-sender"),
        ("contract", bytes(32), "contract-mismatch"),
        ("task_digest", bytes(32), "task-mismatch"),
    )
    for field, value, code in changes:
        forged = forge(silo.key, dataclasses.replace(header, **{field: value}), contents)
        target.expect(code, silo.patch(target.task, forged))
