"""What a job waits for, since when and until when: a pure function of the objects as an API server gives them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fedsilo.api.conditions import UNVERIFIED_REASON, AgentPhase, ConditionType, SiloState
from fedsilo.api.observed import Object, condition, holds, reference, status_of
from fedsilo.api.quorum import quorum

PATH = (
    ConditionType.ACCEPTED,
    ConditionType.ADMITTED,
    ConditionType.SILOS_READY,
    ConditionType.RUNNING,
)
"""Conditions in the order in which a job comes to them."""

ASKED_STATES = (SiloState.AWAITED, SiloState.REPORTED, SiloState.FAILED)
"""States of the silos that are asked in the open round."""


class WaitState(StrEnum):
    """Where a job stands, in the order in which the states are asked; the first that applies is the answer."""

    DELETING = "Deleting"
    COMPLETE = "Complete"
    FAILED = "Failed"
    UNOBSERVED = "Unobserved"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"
    NOT_ACCEPTED = "NotAccepted"
    ADMITTING = "Admitting"
    STARTING_AGENTS = "StartingAgents"
    STARTING_AGGREGATOR = "StartingAggregator"
    IN_ROUND = "InRound"
    BETWEEN_ROUNDS = "BetweenRounds"


CONDITIONS = {
    WaitState.COMPLETE: ConditionType.COMPLETE,
    WaitState.FAILED: ConditionType.FAILED,
    WaitState.SUSPENDING: ConditionType.RUNNING,
    WaitState.SUSPENDED: ConditionType.SUSPENDED,
    WaitState.RESUMING: ConditionType.SUSPENDED,
    WaitState.NOT_ACCEPTED: ConditionType.ACCEPTED,
    WaitState.ADMITTING: ConditionType.ADMITTED,
    WaitState.STARTING_AGENTS: ConditionType.SILOS_READY,
    WaitState.STARTING_AGGREGATOR: ConditionType.RUNNING,
    WaitState.BETWEEN_ROUNDS: ConditionType.RUNNING,
}
"""The condition that tells a state."""


@dataclass(frozen=True)
class Cause:
    """A condition, as far as it explains anything.

    :param condition: None where a state has no condition.
    :param reason: in one word; empty where the job does not have the condition yet.
    :param message: as the operator has written it, with a remedy where there is one.
    :param since: RFC 3339 time at which its status changed; of a condition that is not there, the job's creation.
    """

    condition: ConditionType | None
    reason: str
    message: str
    since: str


@dataclass(frozen=True)
class RoundStatus:
    """The round that waits for answers.

    :param number: the round's own.
    :param rounds: of the whole job, where that is known.
    :param step: phase of the method.
    :param since: RFC 3339 time, as is `until`, the deadline.
    :param awaited: names of silos that may still answer; none while the aggregator folds or scores.
    :param failed: names of silos that cannot.
    :param answered: silos that have.
    :param asked: silos of the round.
    :param needed: its quorum.
    """

    number: int
    rounds: int | None
    step: str | None
    since: str
    until: str | None
    awaited: tuple[str, ...]
    failed: tuple[str, ...]
    answered: int
    asked: int
    needed: int

    @property
    def has_quorum(self) -> bool:
        """Whether the round counts without the silos that are awaited."""
        return self.answered >= self.needed

    @property
    def needs_all(self) -> bool:
        """Whether every silo of the round must answer."""
        return self.needed == self.asked


@dataclass(frozen=True)
class Explanation:
    """What a job waits for.

    :param subject: the job, `namespace/name`.
    :param cause: the condition that tells the state. Of the states without one it says since when only.
    :param unmet: the first condition on the path that does not hold. A job can run all the same: an agent may be down
        in the middle of a round.
    :param round: the open round, whatever the state.
    :param unseen_change: the operator has not acted on the last change of the spec.
    """

    state: WaitState
    subject: str
    cause: Cause
    unmet: Cause | None
    round: RoundStatus | None
    unseen_change: bool


def explain(job: Object) -> Explanation:
    """What the job waits for."""
    status, state = status_of(job), _state(job)
    seen, written = status.get("observedGeneration"), job["metadata"].get("generation")
    return Explanation(
        state,
        reference(job),
        _cause(job, state),
        _unmet_cause(job),
        open_round(job),
        seen is not None and written is not None and seen < written,
    )


def open_round(job: Object) -> RoundStatus | None:
    """The round that the aggregator says is open."""
    status = status_of(job)
    if (begin := status.get("roundStartTime")) is None:
        return None
    silos = [
        silo
        for silo in status.get("silos") or ()
        if silo.get("state") in ASKED_STATES and silo.get("phase") != AgentPhase.LEFT_OUT
    ]
    by_state = {
        state: tuple(silo["name"] for silo in silos if silo["state"] == state) for state in ASKED_STATES
    }
    return RoundStatus(
        number=(status.get("round") or 0) + 1,
        rounds=status.get("rounds"),
        step=status.get("step"),
        since=begin,
        until=status.get("roundDeadline"),
        awaited=by_state[SiloState.AWAITED],
        failed=by_state[SiloState.FAILED],
        answered=len(by_state[SiloState.REPORTED]),
        asked=len(silos),
        needed=quorum((job["spec"].get("participation") or {}).get("minSilos"), len(silos)),
    )


def changed_since_start(job: Object) -> Cause | None:
    """What the job shows otherwise than its silos were given it, while it goes on as it began."""
    found = condition(job, ConditionType.ACCEPTED)
    if found is None or found["status"] != "False" or not status_of(job).get("startTime"):
        return None
    return cause_of(job, ConditionType.ACCEPTED)


def has_ended(job: Object) -> bool:
    """Whether the job is complete or has failed."""
    return holds(job, ConditionType.COMPLETE) or holds(job, ConditionType.FAILED)


def cause_of(job: Object, name: ConditionType) -> Cause:
    """A condition of the job; without reason and message, and since the job's creation, where it has none."""
    found = condition(job, name)
    if found is None:
        return Cause(name, "", "", job["metadata"]["creationTimestamp"])
    return Cause(name, found["reason"], found.get("message") or "", found["lastTransitionTime"])


def _state(job: Object) -> WaitState:
    if job["metadata"].get("deletionTimestamp"):
        return WaitState.DELETING
    if holds(job, ConditionType.COMPLETE):
        return WaitState.COMPLETE
    if holds(job, ConditionType.FAILED):
        return WaitState.FAILED
    if not status_of(job).get("conditions"):
        return WaitState.UNOBSERVED
    if job["spec"].get("suspend"):
        return WaitState.SUSPENDED if holds(job, ConditionType.SUSPENDED) else WaitState.SUSPENDING
    if holds(job, ConditionType.SUSPENDED):
        return WaitState.RESUMING
    return _progress(job)


def _progress(job: Object) -> WaitState:
    """The state of a job that is to run."""
    if holds(job, ConditionType.RUNNING):
        return (
            WaitState.BETWEEN_ROUNDS if status_of(job).get("roundStartTime") is None else WaitState.IN_ROUND
        )
    accepted = condition(job, ConditionType.ACCEPTED)
    if accepted is not None and accepted["status"] == "False" and not status_of(job).get("startTime"):
        return WaitState.NOT_ACCEPTED
    if not holds(job, ConditionType.ADMITTED):
        return WaitState.ADMITTING
    return (
        WaitState.STARTING_AGGREGATOR if holds(job, ConditionType.SILOS_READY) else WaitState.STARTING_AGENTS
    )


def _cause(job: Object, state: WaitState) -> Cause:
    if state in CONDITIONS:
        return cause_of(job, CONDITIONS[state])
    metadata = job["metadata"]
    since = metadata["deletionTimestamp"] if state == WaitState.DELETING else metadata["creationTimestamp"]
    if state == WaitState.IN_ROUND:
        since = status_of(job)["roundStartTime"]
    return Cause(None, "", "", since)


def _unmet_cause(job: Object) -> Cause | None:
    for name in PATH:
        found = condition(job, name)
        # An unverified method is no hindrance: the aggregator's image decides.
        if found is not None and found["status"] != "True" and found["reason"] != UNVERIFIED_REASON:
            return cause_of(job, name)
    if holds(job, ConditionType.RUNNING):
        return None
    return next((cause_of(job, name) for name in PATH if condition(job, name) is None), None)
