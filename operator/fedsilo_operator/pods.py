"""Whether the pods of a Job run or live, and how the Job ended, in words that a person can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsilo.api.observed import condition, holds, status_of
from fedsilo_operator.endings import Failure, failure_of, reason_in
from fedsilo_operator.objects import COMPONENT, Object, is_deleted, labels_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.remedies import REMEDIES


@dataclass(frozen=True)
class Ending:
    """How a Job ended.

    :param reason: that of the process where it left one.
    """

    succeeded: bool
    reason: str
    message: str


def running(pods: Sequence[Object]) -> bool:
    """Whether a pod runs, on a node that answers, or is done: its Job is about to say so.

    A container ends, and its pod is no longer ready, a moment before the kubelet gives the pod its last phase.
    """
    return any(
        phase(pod) == "Succeeded" or (runs(pod) and (holds(pod, "Ready") or "terminated" in state(pod)))
        for pod in pods
    )


def alive(pods: Sequence[Object]) -> bool:
    """Whether a pod may still write to its volume."""
    return any(phase(pod) not in ("Succeeded", "Failed") for pod in pods)


def ending(job: Object | None, pods: Sequence[Object]) -> Ending | None:
    """How the Job ended; None while it has not.

    A Job fails when all its pods have ended (Kubernetes 1.31). Pods that seem to live are news on its way, and a
    pod's last words are worth waiting for.

    :param pods: those that the Job made; none to ask the Job alone.
    """
    if job is None:
        return None
    who = component(job)
    if holds(job, "Complete"):
        return Ending(True, Reason.COMPLETE, f"The {who} is done.")
    if not holds(job, "Failed") or alive(pods):
        return None
    found = condition(job, "Failed") or {}
    last = last_failure(pods)
    if last is None:
        message = str(found.get("message") or "")
        reason = reason_in(message) or found.get("reason") or Reason.INTERNAL_ERROR
        return Ending(False, reason, f"The {who} failed: {sentence(message)}")
    if found.get("reason") == Reason.BACKOFF_LIMIT_EXCEEDED:
        tries = status_of(job).get("failed", len(pods))
        text = f"The {who} was started {_times(tries)} in vain, which is all that the job's spec.backoffLimit allows."
        return Ending(
            False, last.reason or Reason.BACKOFF_LIMIT_EXCEEDED, f"{text} At last it {last.message}"
        )
    return Ending(False, last.reason or Reason.INTERNAL_ERROR, f"The {who} {last.message}")


def last_failure(pods: Sequence[Object]) -> Failure | None:
    """Why the newest pod that failed did."""
    failed = [pod for pod in pods if phase(pod) == "Failed"]
    last = max(failed, key=created, default=None)
    return None if last is None else failure_of(last, REMEDIES[component(last)]["memory"])


def component(obj: Object) -> str:
    """Aggregator, trainer or guard, as a Job or pod is labelled."""
    return labels_of(obj)[COMPONENT]


def phase(pod: Object) -> str:
    """Phase of a pod."""
    return str(status_of(pod).get("phase") or "Pending")


def runs(pod: Object) -> bool:
    """Whether its node has said that the pod runs, and nobody wants it to go."""
    return phase(pod) == "Running" and not is_deleted(pod)


def state(pod: Object) -> Mapping[str, Any]:
    """Of the container whose turn it is."""
    name = "initContainerStatuses" if begins(pod) else "containerStatuses"
    statuses = status_of(pod).get(name) or [{}]
    return statuses[0].get("state") or {}


def begins(pod: Object) -> bool:
    """Whether the pod has a look at the network before it that has not ended well yet."""
    statuses = status_of(pod).get("initContainerStatuses") or ()
    ended = [(status.get("state") or {}).get("terminated") or {} for status in statuses]
    return any(end.get("exitCode") != 0 for end in ended)


def created(pod: Object) -> str:
    """When the pod was made; such texts compare like times."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def sentence(text: str | None) -> str:
    """The words of another component on one line, ending like a sentence."""
    line = " ".join((text or "no reason was given").split())
    return line if line.endswith((".", "!")) else f"{line}."
