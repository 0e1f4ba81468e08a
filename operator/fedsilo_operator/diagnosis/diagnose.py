"""What keeps the pod of a Job from running, as a diagnosis that a person can act on.

Scheduler, kubelet and Job controller each report it elsewhere: in a pod's conditions, in the state of its container, or
only in an Event. All of that is read here and in `pending`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object, holds, status_of, uid_of
from fedsilo_operator.diagnosis.outcome import last_termination
from fedsilo_operator.diagnosis.patience import ROOM_PATIENCE, PendingDiagnosis, first_seen, last_seen
from fedsilo_operator.diagnosis.pending import pending_diagnosis
from fedsilo_operator.diagnosis.pods import (
    PodCondition,
    PodPhase,
    alive,
    component,
    creation_time,
    phase,
    runs,
    sentence,
    state,
)
from fedsilo_operator.diagnosis.remedies import REMEDIES, what_to_do
from fedsilo_operator.diagnosis.termination import termination_of
from fedsilo_operator.limit_range import is_of_limit_range, limit_range_remedy
from fedsilo_operator.objects import is_deleted, ref_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.workloads.suspension import suspender


@dataclass(frozen=True)
class PodState:
    """How the pod of a Job is on its way to run.

    :param diagnosis: what keeps it from running; None while all is well or on its way.
    :param patience_seconds: time after which something else that keeps it from running counts, unless it has passed by
        then: nothing else wakes the operator.
    """

    diagnosis: Diagnosis | None = None
    patience_seconds: float | None = field(default=None, compare=False)


def diagnose(job: Object | None, pods: Sequence[Object], events: Sequence[Object], now: datetime) -> PodState:
    """What keeps the Job's pod from running.

    :param pods: those that the Job made.
    :param events: those about the Job and its pods; they expire, so some may be gone.
    """
    if job is None:
        return PodState()
    current = max((pod for pod in pods if alive([pod])), key=creation_time, default=None)
    if (who := suspender(job)) is not None and (current is None or is_deleted(current)):
        return PodState(_suspended_diagnosis(job, who))
    if current is None:
        return _with_patience(_not_created(job, pods, events), job, pods, now)
    if is_deleted(current):
        return PodState(_disruption_diagnosis(current))
    if runs(current):
        return PodState(None if holds(current, PodCondition.READY) else _node_lost(current))
    about = [event for event in events if event["involvedObject"].get("uid") == uid_of(current)]
    return _with_patience(pending_diagnosis(job, current, about), job, pods, now)


def _with_patience(
    found: PendingDiagnosis | None, job: Object, pods: Sequence[Object], now: datetime
) -> PodState:
    """The state of a Job without a pod that runs: until what it waits for has lasted, how the pod before has ended."""
    left = 0.0 if found is None else found.seconds_left(now)
    if found is None or left > 0.0:
        return PodState(_failed_before(job, pods), left or None)
    return PodState(found.diagnosis)


def _suspended_diagnosis(job: Object, who: str) -> Diagnosis:
    what = f"The {component(job)} waits: {who} has suspended Job {ref_of(job)} (spec.suspend)."
    return Diagnosis(Reason.SUSPENDED_BY, f"{what} It runs as soon as the Job is resumed there.")


def _not_created(job: Object, pods: Sequence[Object], events: Sequence[Object]) -> PendingDiagnosis | None:
    """A Job whose pod the API server refuses has no pod to examine: only an Event reports it."""
    newest = max((creation_time(pod) for pod in pods), default="")
    reported = [
        event
        for event in events
        if event.get("reason") == "FailedCreate"
        and event["involvedObject"].get("uid") == uid_of(job)
        and last_seen(event) > newest
    ]
    if not reported:
        return None
    message = max(reported, key=last_seen)["message"].removeprefix("Error creating: ")
    remedy = f"Change the rules of namespace {ref_of(job).namespace}, or {what_to_do(job, 'resources')}."
    if "PodSecurity" in message:
        remedy = (
            "A hostPath volume needs a namespace that permits it; everything else of the pod is restricted."
        )
    elif "exceeded quota" in message or "failed quota" in message:
        remedy = f"Raise the quota, or {what_to_do(job, 'resources')}."
    elif is_of_limit_range(message):
        remedy = limit_range_remedy(ref_of(job).namespace, what_to_do(job, "resources"))
    text = f"The cluster refuses the {component(job)}'s pod: {sentence(message)} {remedy}"
    return PendingDiagnosis.of(
        Diagnosis(Reason.POD_REFUSED, text), max(first_seen(reported), newest), ROOM_PATIENCE
    )


def _failed_before(job: Object, pods: Sequence[Object]) -> Diagnosis | None:
    last = last_termination(pods)
    if last is None:
        return None
    if last.disruption:
        return Diagnosis(last.disruption, f"The {component(job)} {last.message} It starts again.")
    text = f"The {component(job)} {last.message}"
    used, tries = _tries(job, pods)
    if used >= tries:
        return Diagnosis(Reason(last.reason or Reason.BACKOFF_LIMIT_EXCEEDED), text)
    text += f" It is tried again: {used} of {tries} tries are used up."
    if last.reason != Reason.OUT_OF_MEMORY:
        return Diagnosis(Reason.RESTARTING, text)
    if component(job) == "trainer":
        text += f" A Silo that is edited counts from when Job {ref_of(job).name} is deleted."
    return Diagnosis(Reason.OUT_OF_MEMORY, text)


def _tries(job: Object, pods: Sequence[Object]) -> tuple[int, int]:
    """How often the Job's pods have failed, and how often they may; the Job's own count follows a moment later."""
    failed = [pod for pod in pods if phase(pod) == PodPhase.FAILED]
    used, tries = (
        max(status_of(job).get("failed", 0), len(failed)),
        job["spec"]["backoffLimit"] + 1,
    )
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    permanent = {
        code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]
    }
    codes = {(state(pod).get("terminated") or {}).get("exitCode") for pod in failed}
    return (tries if codes & permanent else used), tries


def _disruption_diagnosis(pod: Object) -> Diagnosis | None:
    """A pod on its way out; without a disruption, the Job itself removes it."""
    failure = termination_of(pod, REMEDIES[component(pod)]["memory"])
    if failure is None or failure.disruption is None:
        return None
    text = f"The {component(pod)} {failure.message} It starts again when the old pod is gone."
    return Diagnosis(failure.disruption, text)


def _node_lost(pod: Object) -> Diagnosis | None:
    """Its container ran when the kubelet last spoke; the control plane has marked it since."""
    statuses = status_of(pod).get("containerStatuses") or ()
    if not statuses or not statuses[0].get("ready"):
        return None
    node = pod["spec"].get("nodeName", "unknown")
    text = f"The {component(pod)} runs on node {node}, which does not answer. Repair or remove the node."
    return Diagnosis(Reason.NODE_LOST, text)
