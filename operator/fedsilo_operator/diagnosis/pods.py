"""The state of Kubernetes' own Jobs and pods: whether a pod runs, or may still write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from fedsilo.api.observed import Object, holds, status_of
from fedsilo_operator.objects import COMPONENT, POD, is_deleted, labels_of


class PodPhase(StrEnum):
    """Phases of a pod (core/v1)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodCondition(StrEnum):
    """Conditions of a pod (core/v1) that are read here."""

    SCHEDULED = "PodScheduled"
    READY = "Ready"
    SANDBOX_READY = "PodReadyToStartContainers"
    DISRUPTION_TARGET = "DisruptionTarget"


SUCCESS_SECONDS = 10.0
"""Longest time that one step towards a Job's success waits for the next: nothing follows from it before the last."""


class JobCondition(StrEnum):
    """Conditions of a Job (batch/v1), namely the two ends, and what comes before the good one."""

    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    COMPLETE = "Complete"
    FAILED = "Failed"


def running(pods: Sequence[Object]) -> bool:
    """Whether a pod runs, on a node that answers, or is done: its Job is about to report that.

    A container ends, and its pod is no longer ready, a moment before the kubelet gives the pod its last phase.
    """
    return any(
        phase(pod) == PodPhase.SUCCEEDED
        or (runs(pod) and (holds(pod, PodCondition.READY) or "terminated" in state(pod)))
        for pod in pods
    )


def alive(pods: Sequence[Object]) -> bool:
    """Whether a pod may still write to its volume."""
    return any(phase(pod) not in (PodPhase.SUCCEEDED, PodPhase.FAILED) for pod in pods)


def coalesce_delay(_before: Object | None, after: Object | None) -> float:
    """Seconds for which a change of a child may wait for others: a Job's success counts when the Job is done."""
    if after is None or is_deleted(after):
        return 0.0
    if after["kind"] == POD.name:
        return SUCCESS_SECONDS if phase(after) == PodPhase.SUCCEEDED else 0.0
    met = holds(after, JobCondition.SUCCESS_CRITERIA_MET) and not holds(after, JobCondition.COMPLETE)
    return SUCCESS_SECONDS if met else 0.0


def component(obj: Object) -> str:
    """Aggregator, trainer or guard, as a Job or pod is labelled."""
    return labels_of(obj)[COMPONENT]


def phase(pod: Object) -> str:
    """Phase of a pod."""
    return str(status_of(pod).get("phase") or PodPhase.PENDING)


def runs(pod: Object) -> bool:
    """Whether its node has reported the pod running, and nobody is deleting it."""
    return phase(pod) == PodPhase.RUNNING and not is_deleted(pod)


def state(pod: Object) -> Mapping[str, Any]:
    """State of the container whose turn it is."""
    name = "initContainerStatuses" if begins(pod) else "containerStatuses"
    statuses = status_of(pod).get(name) or [{}]
    return statuses[0].get("state") or {}


def begins(pod: Object) -> bool:
    """Whether the pod's check of the network has still to succeed."""
    statuses = status_of(pod).get("initContainerStatuses") or ()
    ended = [(status.get("state") or {}).get("terminated") or {} for status in statuses]
    return any(end.get("exitCode") != 0 for end in ended)


def creation_time(pod: Object) -> str:
    """When the pod was made; these texts sort as times do."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def sentence(text: str | None) -> str:
    """Another component's message on one line, with a full stop."""
    line = " ".join((text or "no reason was given").split())
    return line if line.endswith((".", "!")) else f"{line}."
