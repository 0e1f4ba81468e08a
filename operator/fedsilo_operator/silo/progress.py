"""How far guard and trainer are: the conditions `Ready`, `Finished` and `Failed`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fedsilo.api.observed import condition, holds
from fedsilo_operator.conditions import Condition, moment
from fedsilo_operator.pods import Ending, alive, ending, running
from fedsilo_operator.reasons import Reason
from fedsilo_operator.refusals import told
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.troubles import Trouble, trouble
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

    phase: str
    conditions: tuple[Condition, ...]

    def hindered(self, reason: Reason, message: str) -> Progress:
        """The same, with what the operator may not do."""
        (ready,) = self.conditions
        return replace(self, conditions=(replace(ready, reason=reason, message=message),))

    @property
    def message(self) -> str:
        """What matters most: the end where there is one."""
        return self.conditions[-1].message


def progress(seen: AgentObservation, admitted: bool, now: datetime) -> Progress:
    """The state of an agent that has not come to its end before.

    :param admitted: whether the silo admits the job now; it may have changed its mind.
    """
    ends = {
        component: ending(seen.job(component), seen.pods.get(component, ())) for component in (TRAINER, GUARD)
    }
    failed = [end for end in ends.values() if end is not None and not end.succeeded]
    if failed:
        return _over("Failed", failed[0].reason, " ".join(end.message for end in failed))
    if ends[GUARD] is not None and (ends[TRAINER] is not None or _was_stopped(seen)):
        return _over(
            "Finished", Reason.FINISHED, "The job is over for this silo: guard and trainer are done."
        )
    if not admitted:
        found = _idle("Refused", Reason.ADMITTING, "No pods: the silo does not admit the job.")
    else:
        found = _suspended(seen) if seen.suspended else _working(seen, ends, now)
    hindrance = told(seen.refused)
    return found if hindrance is None else found.hindered(*hindrance)


def _working(seen: AgentObservation, ends: dict[str, Ending | None], now: datetime) -> Progress:
    waiting = [
        component
        for component, end in ends.items()
        if end is None and not running(seen.pods.get(component, ()))
    ]
    if not waiting:
        ready = Condition("Ready", "True", Reason.RUNNING, "Guard and trainer run.")
        return Progress("Running", (ready,))
    for component in waiting:
        found = _trouble(seen, component, now)
        if found is not None:
            return _idle("Starting", found.reason, found.message)
    if seen.strays:
        names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in seen.strays)
        text = f"Waiting until {names} is gone, which an earlier agent of this name has left."
        return _idle("Starting", Reason.STARTING, text)
    if seen.leftovers:
        text = f"Waiting for the end of an earlier pod ({', '.join(sorted(seen.leftovers))})."
        return _idle("Starting", Reason.STARTING, text)
    names = " and ".join(f"the {component}" for component in waiting)
    return _idle("Starting", Reason.STARTING, f"Waiting for {names} to run.")


def _trouble(seen: AgentObservation, component: str, now: datetime) -> Trouble | None:
    found = trouble(seen.job(component), seen.pods.get(component, ()), seen.events)
    follows = component == GUARD and found is not None and found.reason == Reason.UNSCHEDULABLE
    return None if follows and not _trainer_waits(seen, now) else found


def _trainer_waits(seen: AgentObservation, now: datetime) -> bool:
    """Whether the trainer has been ready for so long, or is done, that its guard should be placed by now."""
    if ending(seen.job(TRAINER), ()) is not None:
        return True
    ready = [condition(pod, "Ready") or {} for pod in seen.pods.get(TRAINER, ()) if holds(pod, "Ready")]
    return any(moment(found["lastTransitionTime"]) + PATIENCE <= now for found in ready)


def _was_stopped(seen: AgentObservation) -> bool:
    job = seen.job(TRAINER)
    return job is not None and is_suspended(job) and not alive(seen.pods.get(TRAINER, ()))


def _suspended(seen: AgentObservation) -> Progress:
    if not seen.started:
        text = "No pods yet: the job starts when enough silos have admitted it."
        return _idle("Admitted", Reason.SUSPENDED, text)
    if any(alive(pods) for pods in seen.pods.values()):
        return _idle("Suspended", Reason.SUSPENDED, "The pods are being stopped.")
    return _idle("Suspended", Reason.SUSPENDED, "No pods: the job is suspended or over.")


def _idle(phase: str, reason: Reason, message: str) -> Progress:
    return Progress(phase, (Condition("Ready", "False", reason, message),))


def _over(name: str, reason: str, message: str) -> Progress:
    end = Condition(name, "True", reason, message)
    return Progress(name, (Condition("Ready", "False", reason, message), end))
