"""How a Job ended."""

from __future__ import annotations

from collections.abc import Sequence

from fedsilo.api.diagnosis import Diagnosis, Outcome
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo_operator.diagnosis.pods import (
    JobCondition,
    PodPhase,
    alive,
    component,
    creation_time,
    phase,
    sentence,
)
from fedsilo_operator.diagnosis.remedies import REMEDIES
from fedsilo_operator.diagnosis.termination import Termination, reason_in, termination_of
from fedsilo_operator.reasons import Reason


def outcome(job: Object | None, pods: Sequence[Object]) -> Outcome | None:
    """How the Job ended; None while it has not.

    A Job fails when all its pods have ended (Kubernetes 1.31). Pods that seem alive are about to be updated, and a
    pod's termination message is worth waiting for.

    :param pods: those that the Job made; none to ask the Job alone.
    """
    if job is None:
        return None
    who = component(job)
    if holds(job, JobCondition.COMPLETE):
        return Outcome(True, Diagnosis(Reason.COMPLETE, f"The {who} is done."))
    if not holds(job, JobCondition.FAILED) or alive(pods):
        return None
    found = condition(job, JobCondition.FAILED) or {}
    last = last_termination(pods)
    if last is None:
        message = str(found.get("message") or "")
        reason = reason_in(message) or found.get("reason") or Reason.INTERNAL_ERROR
        return _failed_outcome(reason, f"The {who} failed: {sentence(message)}")
    if found.get("reason") == Reason.BACKOFF_LIMIT_EXCEEDED:
        tries = status_of(job).get("failed", len(pods))
        text = f"The {who} was started {_times(tries)} in vain, which is all that the job's spec.backoffLimit allows."
        return _failed_outcome(
            last.reason or Reason.BACKOFF_LIMIT_EXCEEDED, f"{text} At last it {last.message}"
        )
    return _failed_outcome(last.reason or Reason.INTERNAL_ERROR, f"The {who} {last.message}")


def _failed_outcome(reason: Reason | str, message: str) -> Outcome:
    return Outcome(False, Diagnosis(reason, message))


def last_termination(pods: Sequence[Object]) -> Termination | None:
    """Why the newest pod that failed did."""
    failed = [pod for pod in pods if phase(pod) == PodPhase.FAILED]
    last = max(failed, key=creation_time, default=None)
    return None if last is None else termination_of(last, REMEDIES[component(last)]["memory"])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
