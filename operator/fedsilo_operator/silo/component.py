"""Guard and trainer, each as its Job and the pods that the Job made say how it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object, condition, holds
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.silo.agent.component import TRAINER_LOST
from fedsilo_operator.diagnosis.diagnose import PodState, diagnose
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import JobCondition, PodCondition, alive, running
from fedsilo_operator.reasons import Reason
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.silo.state import ComponentJob
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from fedsilo_operator.workloads.suspension import is_suspended

GUARD_PLACEMENT = timedelta(seconds=15)
"""A guard fits only the node of its trainer: for that long after the trainer is ready, it is merely being placed."""

GUARD_END_SECONDS = 60.0
"""Time in which a guard whose trainer is done ends, for it has told the trainer that the job is over; one that goes on
has not."""


def components(seen: AgentObservation, now: datetime) -> tuple[ComponentJob, ComponentJob]:
    """States of the agent's trainer and guard."""
    trainer, guard = _component(seen, TRAINER, now), _component(seen, GUARD, now)
    unscheduled = guard.diagnosis is not None and guard.diagnosis.reason == Reason.UNSCHEDULABLE
    ready = _ready_since(seen.pods.get(TRAINER, ()))
    placed = min(ready) + GUARD_PLACEMENT if ready else None
    if unscheduled and not trainer.ended and (placed is None or now < placed):
        seconds = None if placed is None else (placed - now).total_seconds()
        guard = replace(guard, diagnosis=None, patience_seconds=seconds)
    if trainer_lost_seconds(seen, trainer, guard, now) == 0:
        trainer = replace(trainer, outcome=TRAINER_LOST)
    if not (trainer.diagnosis or guard.diagnosis):
        left = _left_by_another(seen)
        trainer, guard = replace(trainer, diagnosis=left), replace(guard, diagnosis=left)
    return trainer, guard


def _component(seen: AgentObservation, name: str, now: datetime) -> ComponentJob:
    job, pods = seen.job(name), seen.pods.get(name, ())
    ended, runs, lives = outcome(job, pods), running(pods), alive(pods)
    pod = PodState() if ended or runs else diagnose(job, pods, seen.events, now)
    return ComponentJob(
        name,
        running=runs,
        alive=lives,
        stopped=job is not None and is_suspended(job) and not lives,
        outcome=ended,
        done_seconds=_done_seconds(job, now),
        diagnosis=pod.diagnosis,
        job=job,
        ended=outcome(job, ()) is not None,
        previous_pod=name in seen.previous_pods,
        patience_seconds=pod.patience_seconds,
    )


def _done_seconds(job: Object | None, now: datetime) -> float | None:
    if job is None or not holds(job, JobCondition.COMPLETE):
        return None
    done = (condition(job, JobCondition.COMPLETE) or {}).get("lastTransitionTime")
    return None if done is None else (now - parse_timestamp(done)).total_seconds()


def _left_by_another(seen: AgentObservation) -> Diagnosis | None:
    """What has to be gone first: objects of an earlier agent of this name, or pods of an earlier Job."""
    if seen.orphans:
        names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in seen.orphans)
        text = f"Waiting until {names} is gone, which an earlier agent of this name has left."
    elif seen.previous_pods:
        text = f"Waiting for the end of an earlier pod ({', '.join(sorted(seen.previous_pods))})."
    else:
        return None
    return Diagnosis(Reason.STARTING, text)


def _ready_since(pods: Sequence[Object]) -> list[datetime]:
    ready = [condition(pod, PodCondition.READY) or {} for pod in pods if holds(pod, PodCondition.READY)]
    return [parse_timestamp(found["lastTransitionTime"]) for found in ready if "lastTransitionTime" in found]


def trainer_lost_seconds(
    seen: AgentObservation, trainer: ComponentJob, guard: ComponentJob, now: datetime
) -> float | None:
    """Seconds until a trainer that is done counts as lost, since its guard goes on; None while nothing tells that."""
    done, guarding = trainer.done_seconds, _ready_since(seen.pods.get(GUARD, ()))
    if done is None or guard.ended or seen.suspended or not guarding:
        return None
    return max(0.0, GUARD_END_SECONDS - min(done, (now - max(guarding)).total_seconds()))
