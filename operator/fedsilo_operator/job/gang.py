"""All agents of a job run together, or none holds anything: what the status remembers of that from step to step.

Silos are clusters and namespaces of their own, so that no scheduler places the agents of a job together. Two jobs that
each hold half of what both need would wait for each other for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from fedsilo.api.observed import Object, status_of
from fedsilo.api.status import AwaitedAgent, GangStatus
from fedsilo.api.timestamps import parse_timestamp, timestamp
from fedsilo.backoff import Backoff

PAUSES = Backoff(first=30.0, longest=300.0)
"""How long a job that is put off holds nothing; jitter adds up to as much again."""

MAX_AWAITED, MAX_COMPETITORS, MAX_MESSAGE_CHARACTERS = 100, 20, 1024
"""Silos and jobs that the status names, and characters of what it says of a silo."""


@dataclass(frozen=True)
class Gang:
    """How the agents of a job come to run together.

    :param attempt: how often it was put off since all its agents ran last.
    :param deadline: until when all agents run, or the job frees what it holds.
    :param retry_time: when a job that is put off tries again at the latest; None while it is not put off.
    :param awaited: agents for which there is no room, and why; of a job that is put off, as it was then.
    :param competitors: jobs that ran in those silos when the job was put off, or that went first.
    :param sufficient: whether the job goes on without the agents that are missing, as a quorum runs.
    :param lacks_quorum: whether too few agents run for any round, since another has suspended the others.
    """

    attempt: int = 0
    deadline: datetime | None = None
    retry_time: datetime | None = None
    awaited: tuple[AwaitedAgent, ...] = ()
    competitors: tuple[str, ...] = ()
    sufficient: bool = False
    lacks_quorum: bool = False

    @classmethod
    def read(cls, job: Object) -> Gang:
        """What the job's status says; nothing where it says nothing that this version can read."""
        try:
            stated = GangStatus.model_validate(status_of(job).get("gang") or {})
            return cls(
                stated.attempt,
                None if stated.deadline is None else parse_timestamp(stated.deadline),
                None if stated.retry_time is None else parse_timestamp(stated.retry_time),
                stated.awaited,
                stated.competitors,
            )
        except (ValidationError, ValueError):
            return cls()

    @property
    def put_off(self) -> bool:
        """Whether the job holds nothing for now."""
        return self.retry_time is not None

    @property
    def silos(self) -> frozenset[str]:
        """Silos in which there is no room for an agent."""
        return frozenset(awaited.silo for awaited in self.awaited)

    def as_status(self) -> Mapping[str, Any] | None:
        """The gang as the status has it; None where there is nothing to say."""
        content = {
            "attempt": self.attempt,
            "deadline": self.deadline and timestamp(self.deadline),
            "retryTime": self.retry_time and timestamp(self.retry_time),
            "awaited": [found.model_dump(mode="json", by_alias=True) for found in self.awaited],
            "competitors": list(self.competitors),
        }
        stated = {name: value for name, value in content.items() if value}
        return stated or None


NO_GANG = Gang()
"""Gang of a job whose agents all run, or that wants none."""


def pause(uid: str, attempt: int) -> timedelta:
    """How long a job is put off: longer with each attempt, and never as long as another job that was put off with it.

    The jitter follows from job and attempt, so that another operator comes to the same time.
    """
    digest = hashlib.sha256(f"{uid} {attempt}".encode()).digest()
    jitter = int.from_bytes(digest[:4], "big") / 2**32
    return timedelta(seconds=PAUSES.pause(attempt - 1) * (1.0 + jitter))
