"""What is found out about a job, as conditions: while it goes on, and what it came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedsilo.api.conditions import ConditionType
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import condition
from fedsilo.process import version
from fedsilo_operator.conditions import Condition
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import running
from fedsilo_operator.job.checks import is_known, unverified
from fedsilo_operator.job.member import Member
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.silos import (
    Choice,
    admission,
    admitted,
    claim_conflict,
    job_rejections,
    lost_quorum,
    readiness,
    starters,
)
from fedsilo_operator.job.trust import replaced_master
from fedsilo_operator.objects import JOB
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import claim_ref

WAITING = frozenset((Reason.ADMITTING, Reason.STARTING, Reason.SUSPENDED, Reason.FINISHED))
"""Reasons for which a condition is False without anything being wrong."""


@dataclass(frozen=True)
class Course:
    """A living job: who takes part, and whether pods are wanted.

    :param choice: the silos in question; after the start, those that take part.
    :param members: those that take part, once the job starts, else those in question.
    :param started: whether the silos are settled, be it by this very step.
    """

    choice: Choice
    members: tuple[Member, ...]
    started: bool
    suspended: bool

    @property
    def active(self) -> bool:
        """Whether the agents should run."""
        return self.started and not self.suspended

    @property
    def left_out(self) -> Sequence[Member]:
        """Silos in question that do not take part."""
        taking_part = {member.ref for member in self.members}
        return [member for member in self.choice.members if member.ref not in taking_part]


def course(seen: JobObservation, job: FederatedJob, choice: Choice) -> Course:
    """Where the job stands: it starts when it can, unless it is suspended."""
    suspended = bool(seen.job["spec"].get("suspend", False))
    if seen.has_started or suspended:
        return Course(choice, choice.members, seen.has_started, suspended)
    starting = starters(job, choice)
    return Course(choice, starting or choice.members, bool(starting), suspended)


def kept(seen: JobObservation, name: ConditionType) -> Condition | None:
    """A condition as it was observed, to be said again."""
    found = condition(seen.job, name)
    return Condition(name, found["status"], found["reason"], found["message"]) if found else None


def living(
    seen: JobObservation, job: FederatedJob, course: Course, settings: Settings
) -> Iterator[Condition]:
    """Conditions of a job that goes on; those of the time before the start are not asked again after it."""
    if seen.has_started:
        yield _settled(seen, ConditionType.ACCEPTED) or _accepted(job, course.choice)
        yield _settled(seen, ConditionType.ADMITTED) or admitted(course.members)
    else:
        yield _accepted(job, course.choice)
        yield admission(job, course.choice)
    if course.started:
        yield _silos_ready(course)
        yield _running(seen, course, settings)
    if course.suspended:
        yield Condition(
            ConditionType.SUSPENDED,
            "True",
            Reason.SUSPENDED,
            "spec.suspend is true; finished rounds are kept.",
        )
    elif kept(seen, ConditionType.SUSPENDED):
        yield Condition(ConditionType.SUSPENDED, "False", Reason.RESUMED, "spec.suspend is false.")


def over(seen: JobObservation, end: Condition) -> Iterator[Condition]:
    """The last word: how it ended, what stopped with it, and what was true before."""
    hopeless = end.type == ConditionType.FAILED and not seen.has_started
    if hopeless:
        yield Condition(ConditionType.ACCEPTED, "False", end.reason, end.message)
    for name in (ConditionType.ADMITTED,) if hopeless else (ConditionType.ACCEPTED, ConditionType.ADMITTED):
        if before := kept(seen, name):
            yield before
    for name in (ConditionType.SILOS_READY, ConditionType.RUNNING, ConditionType.SUSPENDED):
        if kept(seen, name):
            yield Condition(name, "False", Reason.FINISHED, "The job is over.")
    yield end


def invalid(lines: Sequence[str]) -> Condition:
    """The end of a job that could never run."""
    return Condition(ConditionType.FAILED, "True", Reason.MANIFEST_INVALID, "\n".join(lines))


def end(seen: JobObservation, job: FederatedJob, choice: Choice) -> Condition | None:
    """Complete or Failed: the aggregator has ended or can never run, or too few silos are left or there ever were."""
    if choice.obstacle is not None and choice.obstacle.permanent:
        return Condition.of(ConditionType.FAILED, "True", choice.obstacle)
    if (found := aggregator_s_end(seen)) is not None:
        return found
    if seen.has_started and (lost := lost_quorum(job, choice.members)):
        return Condition(ConditionType.FAILED, "True", Reason.QUORUM_LOST, lost)
    hindered = diagnose(seen.children.get(JOB), seen.pods, seen.events)
    if hindered is not None and hindered.permanent:
        return Condition.of(ConditionType.FAILED, "True", hindered)
    return None


def aggregator_s_end(seen: JobObservation) -> Condition | None:
    """What the aggregator came to, if it has ended."""
    found = outcome(seen.children.get(JOB), seen.pods)
    if found is None:
        return None
    if not found.succeeded:
        return _failed(found.diagnosis, _last_trouble(seen, found.diagnosis.reason))
    message = f"The model is in PersistentVolumeClaim {claim_ref(seen.job).name}."
    return Condition(ConditionType.COMPLETE, "True", Reason.COMPLETE, message)


def unreadable(seen: JobObservation, lines: Sequence[str]) -> Iterator[Condition]:
    """What is said of a job that another version has started and that this one cannot read."""
    faults = " ".join(f"{line}." for line in lines)
    text = (
        f"Another version of the operator has started this job, and {version()} cannot read it: {faults} Its pods go on"
        " as they are, and no silo that is lost meanwhile is noticed. Run the version that started it, or a newer one."
    )
    yield Condition(ConditionType.ACCEPTED, "Unknown", Reason.UNREADABLE, text)
    for name in (
        ConditionType.ADMITTED,
        ConditionType.SILOS_READY,
        ConditionType.RUNNING,
        ConditionType.SUSPENDED,
    ):
        if before := kept(seen, name):
            yield before


def _accepted(job: FederatedJob, choice: Choice) -> Condition:
    if choice.obstacle is not None:
        return Condition.of(ConditionType.ACCEPTED, "False", choice.obstacle)
    if not is_known(job):
        return Condition(ConditionType.ACCEPTED, "Unknown", Reason.UNVERIFIED, unverified(job))
    return Condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, "The specification can be run.")


def _settled(seen: JobObservation, name: ConditionType) -> Condition | None:
    """A condition as it was at the start; None where the status does not say so yet."""
    before = kept(seen, name)
    unsettled = before is None or before.status == "False" or before.reason == Reason.UNREADABLE
    return None if unsettled else before


def _silos_ready(course: Course) -> Condition:
    if course.suspended:
        return Condition(ConditionType.SILOS_READY, "False", Reason.SUSPENDED, "The job is suspended.")
    return readiness(course.members)


def _running(seen: JobObservation, course: Course, settings: Settings) -> Condition:
    if (hindrance := job_rejections(seen) or replaced_master(seen, settings)) is not None:
        return Condition.of(ConditionType.RUNNING, "True" if running(seen.pods) else "False", hindrance)
    if course.suspended:
        return Condition(ConditionType.RUNNING, "False", Reason.SUSPENDED, "The job is suspended.")
    if running(seen.pods):
        return Condition(ConditionType.RUNNING, "True", Reason.RUNNING, "The aggregator runs.")
    found = diagnose(seen.children.get(JOB), seen.pods, seen.events)
    if found is not None:
        return Condition.of(ConditionType.RUNNING, "False", found)
    if hindrance := claim_conflict(seen):
        return Condition.of(ConditionType.RUNNING, "False", hindrance)
    if JOB in seen.children:
        return Condition(ConditionType.RUNNING, "False", Reason.STARTING, "The aggregator starts.")
    what = "an earlier aggregator's pod to end" if seen.previous_pod else "the silos' agents to run"
    return Condition(ConditionType.RUNNING, "False", Reason.STARTING, f"The aggregator waits for {what}.")


def _failed(diagnosis: Diagnosis, addition: str) -> Condition:
    return Condition(ConditionType.FAILED, "True", diagnosis.reason, diagnosis.message + addition)


def _last_trouble(seen: JobObservation, reason: str) -> str:
    """What was wrong before the tries were used up, where no pod is left that says it."""
    before = kept(seen, ConditionType.RUNNING)
    if reason != Reason.BACKOFF_LIMIT_EXCEEDED or before is None or before.status == "True":
        return ""
    return "" if before.reason in WAITING else f" Before that: {before.message}"
