"""Guard and trainer, each interpreted from its Job and the pods that the Job made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fedsilo.api.diagnosis import Diagnosis, Outcome
from fedsilo.api.observed import Object, condition, holds
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import JobCondition, PodCondition, alive, running
from fedsilo_operator.reasons import Reason
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.silo.state import ComponentState
from fedsilo_operator.workloads.agent import GUARD, TRAINER

GUARD_PLACEMENT = timedelta(seconds=15)
"""A guard fits only the node of its trainer: for that long after the trainer is ready, it is merely being placed."""

TRAINER_EXIT_SECONDS = 30.0
"""Time in which a trainer whose guard is done may end by itself: it publishes the silo's own model, and stopping its
pod would delete the log."""

GUARD_END_SECONDS = 60.0
"""Time in which a guard whose trainer is done ends, for it has told the trainer that the job is over; one that goes on
has not."""

TRAINER_LOST = Outcome(
    False,
    Diagnosis(
        Reason.TRAINER_LOST,
        "The trainer ended with exit code 0 before the job was over; its loader, model or method must not end the "
        "process, see its log.",
    ),
)


def components(seen: AgentObservation, now: datetime) -> tuple[ComponentState, ComponentState]:
    """Trainer and guard."""
    trainer, guard = _component(seen, TRAINER), _component(seen, GUARD)
    unscheduled = guard.diagnosis is not None and guard.diagnosis.reason == Reason.UNSCHEDULABLE
    if (
        unscheduled
        and not trainer.job_ended
        and not _ready_for(seen.pods.get(TRAINER, ()), GUARD_PLACEMENT, now)
    ):
        guard = replace(guard, diagnosis=None)
    if trainer_lost_seconds(seen, trainer, guard, now) == 0:
        trainer = replace(trainer, outcome=TRAINER_LOST)
    return trainer, guard


def _component(seen: AgentObservation, name: str) -> ComponentState:
    job, pods = seen.job(name), seen.pods.get(name, ())
    ended, runs = outcome(job, pods), running(pods)
    return ComponentState(
        name=name,
        job=job,
        job_ended=outcome(job, ()) is not None,
        alive=alive(pods),
        previous_pod=name in seen.previous_pods,
        running=runs,
        outcome=ended,
        diagnosis=None if ended or runs else diagnose(job, pods, seen.events),
    )


def _ready_for(pods: Sequence[Object], duration: timedelta, now: datetime) -> bool:
    """Whether a pod has been ready for so long."""
    ready = [condition(pod, PodCondition.READY) or {} for pod in pods if holds(pod, PodCondition.READY)]
    return any(parse_timestamp(found["lastTransitionTime"]) + duration <= now for found in ready)


def trainer_lost_seconds(
    seen: AgentObservation, trainer: ComponentState, guard: ComponentState, now: datetime
) -> float | None:
    """Seconds until a trainer that is done counts as lost, since its guard goes on; None while nothing tells that."""
    if trainer.job is None or not holds(trainer.job, JobCondition.COMPLETE):
        return None
    ready = [condition(pod, PodCondition.READY) or {} for pod in seen.pods.get(GUARD, ())]
    guarding = [found.get("lastTransitionTime") for found in ready if found.get("status") == "True"]
    done = (condition(trainer.job, JobCondition.COMPLETE) or {}).get("lastTransitionTime")
    if guard.job_ended or seen.suspended or done is None or not guarding:
        return None
    since = max(parse_timestamp(moment) for moment in (done, *guarding) if moment is not None)
    return max(0.0, GUARD_END_SECONDS - (now - since).total_seconds())


def trainer_exit_seconds(trainer: ComponentState, guard: ComponentState, now: datetime) -> float:
    """Seconds that a trainer whose guard is done has left to end by itself; 0 when it may be stopped."""
    if guard.job is None or not holds(guard.job, JobCondition.COMPLETE):
        return 0.0
    if trainer.job is None or trainer.job_ended:
        return 0.0
    done = (condition(guard.job, JobCondition.COMPLETE) or {}).get("lastTransitionTime")
    return max(0.0, TRAINER_EXIT_SECONDS - (now - parse_timestamp(done)).total_seconds()) if done else 0.0
