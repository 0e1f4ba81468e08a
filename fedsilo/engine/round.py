"""The state of one open round, as a pure value.

A round closes when every sampled silo has answered or failed, or at the deadline with quorum. It is lost as soon
as quorum cannot be reached any more, or at the deadline without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from fedsilo.errors import DeadlineExceeded, JobFailed, QuorumLost, SiloFailed

FATAL_REASONS = frozenset({"DataInvalid", "ManifestInvalid", "MethodError"})
"""Failures of a silo that fail the job: neither another silo's answer nor a second try helps."""


class RoundOutcome(Enum):
    """Whether a round is open, closed or lost."""

    OPEN = "open"
    CLOSED = "closed"
    QUORUM_LOST = "quorum lost"
    EXPIRED = "deadline exceeded"


@dataclass(frozen=True)
class OpenRound:
    """Who was asked, who answered, who failed, and how long the aggregator has served the round.

    :param quorum: answers without which the round does not count.
    :param deadline: seconds of serving time after which no silo is waited for.
    :param failed: silo -> why.
    :param elapsed: seconds of serving time so far; time in which the aggregator was down does not count.
    """

    silos: tuple[str, ...]
    quorum: int
    deadline: float
    answered: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    elapsed: float = 0.0

    def answer(self, silo: str) -> OpenRound:
        """The silo's update is durable; an answer outlives an earlier failure of the same silo."""
        failed = {name: why for name, why in self.failed.items() if name != silo}
        return replace(self, answered=self.answered | {silo}, failed=failed)

    def fail(self, silo: str, why: str) -> OpenRound:
        """The silo reported that it cannot answer; after its answer that changes nothing."""
        if silo in self.answered:
            return self
        return replace(self, failed={**self.failed, silo: why})

    def wait(self, seconds: float) -> OpenRound:
        """Serving time goes by."""
        return replace(self, elapsed=self.elapsed + seconds)

    @cached_property
    def awaited_silos(self) -> tuple[str, ...]:
        """Silos that may still answer."""
        return tuple(silo for silo in self.silos if silo not in self.answered and silo not in self.failed)

    @cached_property
    def outcome(self) -> RoundOutcome:
        """Whether the round goes on, is closed, or is lost."""
        enough = len(self.answered) >= self.quorum
        if not self.awaited_silos:
            return RoundOutcome.CLOSED if enough else RoundOutcome.QUORUM_LOST
        if len(self.answered) + len(self.awaited_silos) < self.quorum:
            return RoundOutcome.QUORUM_LOST
        if self.elapsed >= self.deadline:
            return RoundOutcome.CLOSED if enough else RoundOutcome.EXPIRED
        return RoundOutcome.OPEN

    def loss(self) -> JobFailed:
        """The error of a lost round: it names the silos that are missing and why."""
        score = f"{len(self.answered)} of {len(self.silos)} silos answered, quorum is {self.quorum}"
        failures = "; ".join(f"{silo} failed: {why}" for silo, why in self.failed.items())
        if self.outcome is RoundOutcome.EXPIRED:
            waited = ", ".join(self.awaited_silos)
            text = f"{score}; still awaited after {self.deadline:g} s: {waited}"
            return DeadlineExceeded("; ".join(filter(None, [text, failures])))
        return QuorumLost(f"{score}; {failures}")


def fatal_failure(silo: str, reason: str, message: str) -> SiloFailed | None:
    """The job's end, where a silo's failure for this reason is one."""
    if reason not in FATAL_REASONS:
        return None
    failure = SiloFailed(f"silo {silo}: {message}")
    failure.reason = reason
    return failure
