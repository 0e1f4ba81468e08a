"""An observed job, interpreted as one value: actions, conditions and status read nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from fedsilo.api.diagnosis import Condition, Diagnosis, Outcome
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object
from fedsilo_operator.job.eviction import EvictionUnit
from fedsilo_operator.job.gang import NO_GANG, Gang
from fedsilo_operator.job.participants import Participant
from fedsilo_operator.job.trust import Trust
from fedsilo_operator.objects import Kind, Ref


class Stage(Enum):
    """Stage of a job, which decides what its reconcile does."""

    DELETED = auto()
    """The job is being deleted."""

    FINISHED = auto()
    """The job has come to its end before, which nothing takes back."""

    ENDING = auto()
    """The job comes to its end now."""

    UNREADABLE = auto()
    """Another version of the operator has started it, and this one cannot read it."""

    ADMITTING = auto()
    """Its silos decide, or something else is missing."""

    STARTING = auto()
    """The job starts with its participants by this very step."""

    STARTED = auto()
    """Its participants are settled."""


@dataclass(frozen=True)
class AggregatorState:
    """The aggregator's objects, and how its pod does.

    :param children: its objects by kind, the claim included.
    :param orphans: objects under a name of this job's that belong to an earlier job of the same name.
    :param previous_pod: whether a pod of an earlier Job is still there, which may write to the volume.
    :param running: whether a pod runs, or is done and its Job about to report that.
    :param has_run: whether the job's status reports that it ran.
    :param outlived_account: whether a pod is older than its account, so that its token is worth nothing.
    :param waiting: its Job and pods, while no pod runs.
    :param diagnosis: what keeps its pod from running.
    :param patience_seconds: time after which to look whether something else still keeps its pod from running.
    :param outcome: how its Job ended, if it has.
    :param claim_conflict: what is wrong with the claim under the name of its volume.
    """

    children: Mapping[Kind, Object] = field(default_factory=dict)
    orphans: tuple[Object, ...] = ()
    previous_pod: bool = False
    running: bool = False
    has_run: bool = False
    outlived_account: bool = False
    waiting: tuple[Object, ...] = ()
    diagnosis: Diagnosis | None = None
    patience_seconds: float | None = field(default=None, compare=False)
    outcome: Outcome | None = None
    claim_conflict: Diagnosis | None = None

    def may_make(self, kind: Kind) -> bool:
        """Whether an object of this kind can be made, as no earlier job's object still has its name.

        One that has it is deleted first.
        """
        return all(orphan["kind"] != kind.name for orphan in self.orphans)


@dataclass(frozen=True)
class JobState:
    """A job as the operator interprets what it observes of it.

    :param observed: the job as observed: its identity, and its status so far.
    :param agents: all SiloAgents of the job by silo.
    :param has_started: whether the participants were settled before this step.
    :param end: `Complete` or `Failed`, where the job comes to its end now.
    :param faults: what this version of the operator cannot read, a line each.
    :param job: the job in types; None where it could not be read or need not be.
    :param suspended: whether a person wants no pods.
    :param candidates: the silos in question; after the start, those that take part.
    :param starters: those of them that the job can start with, or has started with; none as long as it cannot start.
    :param blocker: why the job cannot start, whatever its silos decide.
    :param rejection: what the API server rejects of the job's own objects.
    :param changed: what the job's object shows otherwise than its silos were given it.
    :param verdict_seconds: time that the aggregator has left to say what is wrong with the job, where too few silos are
        left of those whose trainers could not run it; None where nothing is asked of it.
    :param gang: how all agents come to run together.
    :param units: what a drain moves, a part at a time.
    :param budgets: by which evictions ask.
    """

    observed: Object
    stage: Stage
    agents: Mapping[Ref, Object]
    aggregator: AggregatorState
    has_started: bool = False
    end: Condition | None = None
    faults: tuple[str, ...] = ()
    job: FederatedJob | None = None
    suspended: bool = False
    trust: Trust = field(default_factory=Trust)
    candidates: tuple[Participant, ...] = ()
    starters: tuple[Participant, ...] = ()
    blocker: Diagnosis | None = None
    rejection: Diagnosis | None = None
    changed: Diagnosis | None = None
    verdict_seconds: float | None = None
    gang: Gang = NO_GANG
    units: tuple[EvictionUnit, ...] = ()
    budgets: tuple[Object, ...] = ()

    @property
    def started(self) -> bool:
        """Whether the participants are settled, be it by this very step."""
        return self.stage in (Stage.STARTING, Stage.STARTED)

    @property
    def active(self) -> bool:
        """Whether the agents should run."""
        return self.started and not self.suspended and not self.gang.put_off

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The silos that take part, once the job starts, else those in question."""
        return self.starters if self.started else self.candidates

    @property
    def left_out(self) -> Sequence[Participant]:
        """Silos in question that the job starts without."""
        taking_part = {starter.ref for starter in self.starters}
        return [candidate for candidate in self.candidates if candidate.ref not in taking_part]

    @property
    def awaits_agents(self) -> bool:
        """Whether an agent neither runs nor has failed: the deadline of round 1 must not count its start.

        None is awaited once the job goes on with a quorum, or by an aggregator that is to say what is wrong.
        """
        return (
            self.verdict_seconds is None
            and not self.gang.sufficient
            and any(participant.not_ready is not None for participant in self.participants)
        )
