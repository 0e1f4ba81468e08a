"""Failure reports, questions, uploads and forged updates for a task of another silo, open and answered.

By: a silo of the job with its own key.

Must: refused as `wrong-sender` before anything is said about the task; it stays open.
"""

from __future__ import annotations

from attacks.live_aggregator import REPORT, LiveAggregator


def attack(target: LiveAggregator) -> None:
    silo, task = target.silo, target.other.task().task
    update = target.update()
    target.expect("wrong-sender", silo.head(task))
    target.expect("wrong-sender", silo.patch(task, update))
    target.expect("wrong-sender", silo.patch(task, b""))
    target.expect("wrong-sender", silo.fail(task, REPORT))
    target.expect("wrong-sender", silo.fail(task, b"no report"))
