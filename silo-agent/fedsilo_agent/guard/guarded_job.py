"""What a guard is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsilo.silo.volume import Volume
from fedsilo.wire import SigningKey
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.report import ReceiptsReport
from fedsilo_agent.guard.task_check import TaskCheck


@dataclass(frozen=True)
class GuardedJob:
    """One silo's part in one job.

    :param check: the rules.
    :param volume: shared with the trainer.
    :param key: with which the silo signs.
    :param report: what is said outside of what left.
    :param ledgers: the institution's directory of what was learned of its datasets, over all jobs.
    """

    check: TaskCheck
    volume: Volume
    key: SigningKey
    client: AggregatorClient
    report: ReceiptsReport | None = None
    ledgers: Path | None = None
