"""How far guard and trainer are: the conditions `Ready`, `Finished` and `Failed`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.observed import condition, holds
from fedsilo_operator.conditions import Condition, moment
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.outcome import Outcome, outcome
from fedsilo_operator.diagnosis.pods import alive, running
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.rejections import diagnosis_of
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from fedsilo_operator.workloads.pod import is_suspended

PATIENCE = timedelta(seconds=15)
"""A guard may only be placed where its trainer is: for that long after the trainer is ready, it is merely next."""


@dataclass(frozen=True)
class Progress:
    """What has become of the pods.

    :param phase: as docs/operator.md lists them.
    :param conditions: `Ready`, and whichever end has come.
    """

    phase: AgentPhase
    conditions: tuple[Condition, ...]

    def hindered(self, diagnosis: Diagnosis) -> Progress:
        """The same, with what the operator may not do."""
        (ready,) = self.conditions
        return replace(self, conditions=(Condition.of(ready.type, ready.status, diagnosis),))

    @property
    def message(self) -> str:
        """What matters most: the end where there is one."""
        return self.conditions[-1].message


def progress(seen: AgentObservation, admitted: bool, now: datetime) -> Progress:
    """The state of an agent that has not come to its end before.

    :param admitted: whether the silo admits the job now; it may have changed its mind.
    """
    ends = {
        component: outcome(seen.job(component), seen.pods.get(component, ()))
        for component in (TRAINER, GUARD)
    }
    failed = [end for end in ends.values() if end is not None and not end.succeeded]
    if failed:
        return _over(
            AgentPhase.FAILED,
            ConditionType.FAILED,
            failed[0].diagnosis.reason,
            " ".join(end.diagnosis.message for end in failed),
        )
    if ends[GUARD] is not None and (ends[TRAINER] is not None or _was_stopped(seen)):
        return _over(
            AgentPhase.FINISHED,
            ConditionType.FINISHED,
            Reason.FINISHED,
            "The job is over for this silo: guard and trainer are done.",
        )
    if not admitted:
        found = _idle(AgentPhase.REFUSED, Reason.ADMITTING, "No pods: the silo does not admit the job.")
    else:
        found = _suspended(seen) if seen.suspended else _working(seen, ends, now)
    hindrance = diagnosis_of(seen.rejections)
    return found if hindrance is None else found.hindered(hindrance)


def _working(seen: AgentObservation, ends: dict[str, Outcome | None], now: datetime) -> Progress:
    waiting = [
        component
        for component, end in ends.items()
        if end is None and not running(seen.pods.get(component, ()))
    ]
    if not waiting:
        ready = Condition(ConditionType.READY, "True", Reason.RUNNING, "Guard and trainer run.")
        return Progress(AgentPhase.RUNNING, (ready,))
    for component in waiting:
        found = _trouble(seen, component, now)
        if found is not None:
            return _idle(AgentPhase.STARTING, found.reason, found.message)
    if seen.orphans:
        names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in seen.orphans)
        text = f"Waiting until {names} is gone, which an earlier agent of this name has left."
        return _idle(AgentPhase.STARTING, Reason.STARTING, text)
    if seen.previous_pods:
        text = f"Waiting for the end of an earlier pod ({', '.join(sorted(seen.previous_pods))})."
        return _idle(AgentPhase.STARTING, Reason.STARTING, text)
    names = " and ".join(f"the {component}" for component in waiting)
    return _idle(AgentPhase.STARTING, Reason.STARTING, f"Waiting for {names} to run.")


def _trouble(seen: AgentObservation, component: str, now: datetime) -> Diagnosis | None:
    found = diagnose(seen.job(component), seen.pods.get(component, ()), seen.events)
    follows = component == GUARD and found is not None and found.reason == Reason.UNSCHEDULABLE
    return None if follows and not _trainer_waits(seen, now) else found


def _trainer_waits(seen: AgentObservation, now: datetime) -> bool:
    """Whether the trainer has been ready for so long, or is done, that its guard should be placed by now."""
    if outcome(seen.job(TRAINER), ()) is not None:
        return True
    ready = [
        condition(pod, ConditionType.READY) or {}
        for pod in seen.pods.get(TRAINER, ())
        if holds(pod, ConditionType.READY)
    ]
    return any(moment(found["lastTransitionTime"]) + PATIENCE <= now for found in ready)


def _was_stopped(seen: AgentObservation) -> bool:
    job = seen.job(TRAINER)
    return job is not None and is_suspended(job) and not alive(seen.pods.get(TRAINER, ()))


def _suspended(seen: AgentObservation) -> Progress:
    if not seen.started:
        text = "No pods yet: the job starts when enough silos have admitted it."
        return _idle(AgentPhase.ADMITTED, Reason.SUSPENDED, text)
    if any(alive(pods) for pods in seen.pods.values()):
        return _idle(AgentPhase.SUSPENDED, Reason.SUSPENDED, "The pods are being stopped.")
    return _idle(AgentPhase.SUSPENDED, Reason.SUSPENDED, "No pods: the job is suspended or over.")


def _idle(phase: AgentPhase, reason: Reason | str, message: str) -> Progress:
    return Progress(phase, (Condition(ConditionType.READY, "False", reason, message),))


def _over(phase: AgentPhase, end_type: ConditionType, reason: str, message: str) -> Progress:
    end = Condition(end_type, "True", reason, message)
    return Progress(phase, (Condition(ConditionType.READY, "False", reason, message), end))
