"""What becomes of a job next: from what was observed to what is to be done, without touching anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fedsilo.api.conditions import JobPhase
from fedsilo.api.job import FederatedJob
from fedsilo_operator.conditions import Condition, moment
from fedsilo_operator.diagnosis.events import backoff
from fedsilo_operator.diagnosis.pods import running
from fedsilo_operator.job import agents, aggregator, conditions, status
from fedsilo_operator.job.checks import faults, parse
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.silos import Choice, choose
from fedsilo_operator.job.trust import objections
from fedsilo_operator.objects import (
    FEDERATED_JOB,
    FINALIZER,
    JOB,
    SILO_AGENT,
    Object,
    is_deleted,
    kind_of,
    ref_of,
    uid_of,
)
from fedsilo_operator.plan import Action, Apply, Delete, Plan, isolate
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import AGGREGATOR


def plan(seen: JobObservation, now: datetime, settings: Settings) -> Plan:
    """The next step of a job; nothing when it is settled."""
    if is_deleted(seen.job):
        return _farewell(seen)
    if seen.is_over:
        return _afterwards(seen, now)
    parsed = parse(seen.job)
    wrong = parsed.faults
    if parsed.job is None and seen.has_started:
        return _wait(seen, [fault.line() for fault in wrong], now)
    if parsed.job is not None and not seen.has_started:
        wrong = tuple(faults(parsed.job))
    if parsed.job is None or wrong:
        return _end(seen, conditions.invalid([fault.line() for fault in wrong]), now)
    choice = choose(seen, parsed.job, objections(seen, parsed.job, settings))
    end = conditions.end(seen, parsed.job, choice)
    return _end(seen, end, now) if end else _go_on(seen, parsed.job, choice, now, settings)


def _go_on(
    seen: JobObservation, job: FederatedJob, choice: Choice, now: datetime, settings: Settings
) -> Plan:
    course = conditions.course(seen, job, choice)
    actions: list[Action] = [
        Delete(kind_of(orphan), ref_of(orphan), uid_of(orphan))
        for orphan in seen.orphans
        if not is_deleted(orphan)
    ]
    if FINALIZER not in _finalizers(seen.job):
        actions.append(Apply(_with_finalizers(seen.job, [FINALIZER])))
    lasting = [*aggregator.standing(seen, job, settings)]
    if course.started:
        # First of all what says who takes part: whatever happens next, the job starts with them.
        lasting += aggregator.configuration(seen, job, course.members, settings)
    # Without these nothing starts; after the start, what the API server refuses of them must hold up no silo.
    actions += isolate(AGGREGATOR, lasting) if seen.has_started else lasting
    actions += agents.kept(seen, job, course.members, settings, suspend=not course.active)
    if course.started:
        actions += isolate(AGGREGATOR, aggregator.workload(seen, job, course, settings))
    wanted = status.document(
        seen.job,
        conditions.living(seen, job, course, settings),
        status.silos(seen.job, course),
        started=now if course.started else None,
        now=now,
    )
    starts = course.active and JOB in seen.children and not running(seen.pods)
    requeue_after = backoff((seen.children[JOB], *seen.pods), now) if starts else None
    return Plan(
        tuple(actions), status.news(seen.job, wanted), status.to_write(seen.job, wanted), requeue_after
    )


def _wait(seen: JobObservation, faults: Sequence[str], now: datetime) -> Plan:
    """Nothing is decided about a job that only another version of the operator can read; a person may suspend it."""
    if (end := conditions.aggregator_s_end(seen)) is not None:
        return _end(seen, end, now)
    found = conditions.unreadable(seen, faults)
    wanted = status.document(seen.job, found, status.refreshed(seen.job, seen.agents), now=now)
    actions = _pods_away(seen) if seen.job["spec"].get("suspend", False) else ()
    return Plan(actions, status.news(seen.job, wanted), status.to_write(seen.job, wanted))


def _end(seen: JobObservation, end: Condition, now: datetime) -> Plan:
    """The job is over: its pods go, its objects stay."""
    wanted = status.document(
        seen.job,
        conditions.over(seen, end),
        status.refreshed(seen.job, seen.agents),
        ended=now,
        now=now,
    )
    return Plan(_pods_away(seen), status.news(seen.job, wanted), status.to_write(seen.job, wanted))


def _afterwards(seen: JobObservation, now: datetime) -> Plan:
    """Nothing changes any more, but for what the agents still say, and that the job's time to live runs out."""
    actions = _pods_away(seen)
    wanted = status.unchanged(seen.job, status.refreshed(seen.job, seen.agents))
    lifetime, over_since = seen.job["spec"].get("ttlSecondsAfterFinished"), wanted.get("completionTime")
    requeue_after = None
    if lifetime is not None and over_since is not None:
        requeue_after = max(lifetime - (now - moment(over_since)).total_seconds(), 0.0)
        if requeue_after == 0.0:
            return Plan((*actions, Delete(FEDERATED_JOB, ref_of(seen.job), uid_of(seen.job))))
    return Plan(actions, (), status.to_write(seen.job, wanted), requeue_after)


def _pods_away(seen: JobObservation) -> tuple[Action, ...]:
    """At every end the pods go, so that nobody waits for a dead aggregator on a GPU."""
    return (*agents.suspended(seen), *aggregator.suspended(seen))


def _farewell(seen: JobObservation) -> Plan:
    """The job goes when its agents are gone; the volumes stay."""
    if not seen.agents:
        rest = [name for name in _finalizers(seen.job) if name == FINALIZER]
        return Plan((Apply(_with_finalizers(seen.job, [])),) if rest else ())
    actions = tuple(
        Delete(SILO_AGENT, ref_of(agent), uid_of(agent), failure_group=str(ref_of(agent)))
        for agent in seen.agents.values()
        if not is_deleted(agent)
    )
    wanted = status.unchanged(seen.job, status.refreshed(seen.job, seen.agents)) | {
        "phase": str(JobPhase.TERMINATING)
    }
    return Plan(actions, (), status.to_write(seen.job, wanted))


def _finalizers(job: Object) -> list[str]:
    return job["metadata"].get("finalizers") or []


def _with_finalizers(job: Object, finalizers: list[str]) -> Object:
    """The operator's part of the job's metadata: this and nothing else."""
    metadata = {key: job["metadata"][key] for key in ("name", "namespace", "uid")}
    metadata |= {"finalizers": finalizers} if finalizers else {}
    return {"apiVersion": FEDERATED_JOB.api, "kind": FEDERATED_JOB.name, "metadata": metadata}
