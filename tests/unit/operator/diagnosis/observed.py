"""Jobs, pods and Events as scheduler, kubelet and Job controller write them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.observed import Object

JOB_UID = "4f8a9a52-0000-4000-8000-000000000001"
POD_UID = "9d1f40a1-0000-4000-8000-000000000002"
LATER_TIME = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
"""A time at which everything observed here has lasted for minutes."""

IMAGE = "registry.example/fedsilo-trainer:2"
GUARD_IMAGE = "registry.example/fedsilo-guard:7"


def labels(component: str) -> dict[str, str]:
    agent = {"fedsilo.io/silo": "north", "fedsilo.io/silo-agent": "digits-north-1a2b3c4d"}
    of_silo = {} if component == "aggregator" else agent
    return {
        "app.kubernetes.io/component": component,
        "fedsilo.io/job-name": "digits",
        "fedsilo.io/job-namespace": "federation",
        **of_silo,
    }


def job(component: str = "trainer", *, failed: int = 0, end: dict[str, Any] | None = None) -> Object:
    conditions = [end] if end else []
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"digits-north-1a2b3c4d-{component}",
            "namespace": "silo-north",
            "uid": JOB_UID,
            "labels": labels(component),
        },
        "spec": {
            "backoffLimit": 6,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3, 5, 6, 7]}},
                ]
            },
        },
        "status": {"failed": failed, "conditions": conditions},
    }


def pod(component: str = "trainer", *, uid: str = POD_UID, made: str = "12:00:00", **status: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"digits-north-1a2b3c4d-{component}-x7k2p",
            "namespace": "silo-north",
            "uid": uid,
            "labels": labels(component),
            "creationTimestamp": f"2026-03-01T{made}Z",
        },
        "spec": {
            "nodeName": "gpu-1",
            "initContainers": [{"name": "isolation", "image": GUARD_IMAGE}] if component == "trainer" else [],
            "containers": [
                {
                    "name": component,
                    "image": IMAGE,
                    "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "16Gi"}},
                }
            ],
        },
        "status": status,
    }


def unscheduled_status(message: str, since: str = "12:00:00") -> dict[str, Any]:
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found |= {"lastTransitionTime": f"2026-03-01T{since}Z"}
    return {"phase": "Pending", "conditions": [found]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"ready": False, "state": state}],
    }


def ended_status(code: int, message: str = "", **terminated: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error", "message": message} | terminated}
    return {"phase": "Failed", "containerStatuses": [{"ready": False, "state": state}]}


def looking(state: dict[str, Any], phase: str = "Pending") -> dict[str, Any]:
    """The container that looks at the network is in a state, so the trainer's own waits."""
    waits = {"ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
    return {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [{"ready": False, "state": state}],
        "containerStatuses": [waits],
    }


def looked_status(code: int, message: str = "", **terminated: Any) -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "message": message} | terminated
    return looking({"terminated": end}, "Failed")


def disrupted_status(why: str, said: str, phase: str = "Failed", **more: Any) -> dict[str, Any]:
    target = {"type": "DisruptionTarget", "status": "True", "reason": why, "message": said}
    return {"phase": phase, "conditions": [target], **more}


def runs(ready: str = "True", container: bool = True) -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"ready": container, "state": {"running": {}}}],
    }


def event(
    reason: str, message: str, *, uid: str = POD_UID, first: str = "12:00:01", at: str = "12:01:00"
) -> Object:
    return {
        "reason": reason,
        "message": message,
        "involvedObject": {"uid": uid},
        "firstTimestamp": f"2026-03-01T{first}Z",
        "lastTimestamp": f"2026-03-01T{at}Z",
    }


def words(reason: str, message: str) -> str:
    return json.dumps({"reason": reason, "message": message})


def being_deleted(found: Object) -> Object:
    found["metadata"]["deletionTimestamp"] = "2026-03-01T12:05:00Z"
    return found


@dataclass(frozen=True)
class Case:
    """What is observed, and the reason that is told."""

    reason: str
    pods: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    job: Object = field(default_factory=job)


def failed_condition(reason: str, message: str = "no reason") -> dict[str, Any]:
    return {"type": "Failed", "status": "True", "reason": reason, "message": message}
