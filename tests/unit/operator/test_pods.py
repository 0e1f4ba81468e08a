"""Troubles and endings of pods: from what scheduler, kubelet and Job controller write to what a person reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo_operator.objects import Object
from fedsilo_operator.pods import ending, running, trouble
from fedsilo_operator.reasons import Reason
from tests.unit.operator.golden import sentences

JOB_UID = "4f8a9a52-0000-4000-8000-000000000001"
POD_UID = "9d1f40a1-0000-4000-8000-000000000002"
IMAGE = "registry.example/fedsilo-trainer:2"


def job(component: str = "trainer", *, failed: int = 0, end: dict[str, Any] | None = None) -> Object:
    conditions = [end] if end else []
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"digits-north-1a2b3c4d-{component}",
            "namespace": "silo-north",
            "uid": JOB_UID,
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {"backoffLimit": 6},
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
            "labels": {"app.kubernetes.io/component": component},
            "creationTimestamp": f"2026-03-01T{made}Z",
        },
        "spec": {
            "nodeName": "gpu-1",
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


def unscheduled(message: str) -> dict[str, Any]:
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [found]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"ready": False, "state": state}],
    }


def ended(code: int, message: str = "", **terminated: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error", "message": message} | terminated}
    return {"phase": "Failed", "containerStatuses": [{"ready": False, "state": state}]}


def disrupted(why: str, said: str, phase: str = "Failed", **more: Any) -> dict[str, Any]:
    target = {"type": "DisruptionTarget", "status": "True", "reason": why, "message": said}
    return {"phase": phase, "conditions": [target], **more}


def runs(ready: str = "True", container: bool = True) -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"ready": container, "state": {"running": {}}}],
    }


def event(reason: str, message: str, *, uid: str = POD_UID, at: str = "12:01:00") -> Object:
    return {
        "reason": reason,
        "message": message,
        "involvedObject": {"uid": uid},
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


CREATING = waiting("ContainerCreating")
MOUNT = 'MountVolume.SetUp failed for volume "{0}" : {1}'

TROUBLES = {
    "no GPU": Case(
        "Unschedulable",
        [
            pod(
                **unscheduled(
                    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu. no "
                    "new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for "
                    "scheduling."
                )
            )
        ],
    ),
    "claim does not exist": Case(
        "VolumeMissing",
        [pod(**unscheduled('0/1 nodes are available: persistentvolumeclaim "scans" not found.'))],
    ),
    "claim is not bound": Case(
        "VolumeMissing",
        [pod(**unscheduled("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."))],
    ),
    "image not found": Case(
        "ImageNotFound",
        [
            pod(
                **waiting(
                    "ErrImagePull",
                    f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": not found',
                )
            )
        ],
    ),
    "image not found, between two tries": Case(
        "ImageNotFound",
        [
            pod(
                **waiting(
                    "ImagePullBackOff",
                    f'Back-off pulling image "{IMAGE}": ErrImagePull: failed to pull and unpack image "{IMAGE}": '
                    f'failed to resolve reference "{IMAGE}": not found',
                )
            )
        ],
    ),
    "image not found, said by an old kubelet": Case(
        "ImageNotFound", [pod(**waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'))]
    ),
    "image that must be there": Case(
        "ImageNotFound", [pod(**waiting("ErrImageNeverPull", f'Container image "{IMAGE}" is not present'))]
    ),
    "image that is no reference": Case(
        "ImageNotFound",
        [pod("guard", **waiting("InvalidImageName", "couldn't parse image name"))],
        job=job("guard"),
    ),
    "image that runs as root": Case(
        "PodRefused",
        [
            pod(
                **waiting(
                    "CreateContainerConfigError",
                    "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
                )
            )
        ],
    ),
    "program that is not in the image": Case(
        "PodRefused",
        [pod(**waiting("RunContainerError", 'exec: "fedsilo-trainer": executable file not found in $PATH'))],
    ),
    "configuration is gone": Case(
        "ConfigMissing",
        [pod(**CREATING)],
        [event("FailedMount", MOUNT.format("config", 'configmap "digits-north-1a2b3c4d" not found'))],
    ),
    "key is gone": Case(
        "ConfigMissing",
        [pod("guard", **CREATING)],
        [
            event("FailedMount", MOUNT.format("key", "timed out waiting"), at="12:00:30"),
            event("FailedMount", MOUNT.format("key", 'secret "fedsilo-signing-key" not found')),
        ],
        job("guard"),
    ),
    "directory of the node is not there": Case(
        "VolumeMissing",
        [pod(**CREATING)],
        [
            event(
                "FailedMount",
                MOUNT.format("data", "hostPath type check failed: /srv/scans is not a directory"),
            )
        ],
    ),
    "volume is on another node": Case(
        "VolumeMissing",
        [pod(**CREATING)],
        [
            event(
                "FailedAttachVolume",
                'Multi-Attach error for volume "pvc-77" Volume is already exclusively attached to one node and can\'t '
                "be attached to another",
            )
        ],
    ),
    "node without a network": Case(
        "PodRefused",
        [pod(**CREATING)],
        [
            event(
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: plugin type bridge failed (add): no addresses",
            )
        ],
    ),
    "pod security": Case(
        "PodRefused",
        [],
        [
            event(
                "FailedCreate",
                'Error creating: pods "digits-north-1a2b3c4d-trainer-" is forbidden: violates PodSecurity '
                '"restricted:latest": hostPath volumes (volume "data")',
                uid=JOB_UID,
            )
        ],
    ),
    "quota": Case(
        "PodRefused",
        [],
        [
            event(
                "FailedCreate",
                'Error creating: pods "digits-north-1a2b3c4d-trainer-" is forbidden: exceeded quota: compute, '
                "requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=4, limited: 4",
                uid=JOB_UID,
            )
        ],
    ),
    "limit range": Case(
        "PodRefused",
        [],
        [
            event(
                "FailedCreate",
                'Error creating: pods "digits-north-1a2b3c4d-guard-" is forbidden: minimum cpu usage per Container is '
                "200m, but request is 100m",
                uid=JOB_UID,
            )
        ],
        job("guard"),
    ),
    "out of memory": Case("OutOfMemory", [pod(**ended(137, reason="OOMKilled"))], job=job(failed=1)),
    "aggregator out of memory": Case(
        "OutOfMemory",
        [pod("aggregator", **ended(137, reason="OOMKilled"))],
        job=job("aggregator", failed=1),
    ),
    "crashed, and starts again": Case("Restarting", [pod(**ended(139))], job=job(failed=1)),
    "crashed with last words": Case(
        "Restarting",
        [pod(**ended(1, words("InternalError", "RuntimeError: CUDA error: device-side assert triggered")))],
        job=job(failed=3),
    ),
    "crashed, and the next pod is on its way": Case(
        "Restarting",
        [pod(uid="first", made="11:59:00", **ended(1, "Segmentation fault")), pod(**CREATING)],
        job=job(failed=1),
    ),
    "evicted by its node": Case(
        "Evicted",
        [
            pod(
                **disrupted(
                    "TerminationByKubelet",
                    "The node was low on resource: ephemeral-storage.",
                    reason="Evicted",
                    message="The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi.",
                )
            )
        ],
    ),
    "evicted by an old kubelet": Case(
        "Evicted",
        [pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")],
    ),
    "preempted": Case(
        "Evicted",
        [
            being_deleted(
                pod(
                    **disrupted(
                        "PreemptionByScheduler",
                        "default-scheduler: preempting to accommodate a higher priority pod",
                        "Running",
                    )
                )
            )
        ],
    ),
    "node drained": Case("Evicted", [pod(**disrupted("EvictionByEvictionAPI", "Eviction API: evicting"))]),
    "node lost, and the pod is given up": Case(
        "NodeLost",
        [
            being_deleted(
                pod(
                    **disrupted(
                        "DeletionByTaintManager",
                        "Taint manager: deleting due to NoExecute taint",
                        "Running",
                    )
                )
            )
        ],
    ),
    "node does not answer": Case("NodeLost", [pod(**runs("False"))]),
}

FINE: dict[str, Case] = {
    "no Job's pod yet": Case(""),
    "pod is new": Case("", [pod(phase="Pending")]),
    "container is being made": Case("", [pod(**CREATING)]),
    "container runs, and is ready soon": Case("", [pod(**runs("False", container=False))]),
    "runs": Case("", [pod(**runs())]),
    "runs after a crash": Case(
        "", [pod(uid="first", made="11:00:00", **ended(1)), pod(**runs())], job=job(failed=1)
    ),
    "kubelet's cache is a moment behind": Case(
        "",
        [pod(**CREATING)],
        [event("FailedMount", MOUNT.format("config", "failed to sync configmap cache: timed out"))],
    ),
    "event of another pod": Case(
        "", [pod(**CREATING)], [event("FailedMount", MOUNT.format("a", 'secret "b" not found'), uid="other")]
    ),
    "refused before, made since": Case(
        "",
        [pod(made="12:02:00", phase="Succeeded")],
        [event("FailedCreate", "Error creating: exceeded quota", uid=JOB_UID)],
    ),
    "ends because its Job is suspended": Case("", [being_deleted(pod(**runs()))]),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_troubles_are_told_in_the_words_of_the_golden_file(case: str) -> None:
    observed = TROUBLES[case]
    found = trouble(observed.job, observed.pods, observed.events)
    assert found is not None
    assert found.reason == observed.reason
    assert found.message == sentences("troubles")[case]


@pytest.mark.parametrize("case", FINE)
def test_what_is_on_its_way_is_no_trouble(case: str) -> None:
    observed = FINE[case]
    assert trouble(observed.job, observed.pods, observed.events) is None


def test_waiting_between_two_pulls_says_the_same_as_the_pull() -> None:
    told = sentences("troubles")
    assert told["image not found"] == told["image not found, between two tries"]


def test_only_what_waiting_cannot_mend_is_fatal() -> None:
    fatal = {
        name
        for name, case in TROUBLES.items()
        if (found := trouble(case.job, case.pods, case.events)) and found.fatal
    }
    assert fatal == {"image that is no reference"}


def test_a_node_that_does_not_answer_has_no_pod_that_runs() -> None:
    assert running([pod(**runs())])
    assert not running([pod(**runs("False"))])
    assert not running([being_deleted(pod(**runs()))])


def failed(reason: str, message: str = "no reason") -> dict[str, Any]:
    return {"type": "Failed", "status": "True", "reason": reason, "message": message}


POLICY = "Container trainer for pod silo-north/x failed with exit code 3 matching FailJob rule at index 1"
GUARD_POLICY = POLICY.replace("trainer", "guard").replace("code 3", "code 5")
BACKOFF = "Job has reached the specified backoff limit"

ENDINGS = {
    "complete": Case("Complete", job=job(end={"type": "Complete", "status": "True"})),
    "data are wrong": Case(
        "DataInvalid",
        [
            pod(
                **ended(
                    3, words("DataInvalid", "scans/train.npz: label 11 is not below 10 classes; correct it")
                )
            )
        ],
        job=job(end=failed("PodFailurePolicy", POLICY)),
    ),
    "audit log is broken": Case(
        "AuditBroken",
        [pod("guard", **ended(5, words("AuditBroken", "audit/log.jsonl: line 7 has another hash")))],
        job=job("guard", end=failed("PodFailurePolicy", POLICY)),
    ),
    "no last words, only a code": Case(
        "DataInvalid", [pod(**ended(3))], job=job(end=failed("PodFailurePolicy", POLICY))
    ),
    "crashed once too often": Case(
        "BackoffLimitExceeded",
        [pod(uid="a", made="11:00:00", **ended(1)), pod(**ended(139))],
        job=job(failed=7, end=failed("BackoffLimitExceeded", BACKOFF)),
    ),
    "out of memory once too often": Case(
        "OutOfMemory",
        [pod(**ended(137, reason="OOMKilled"))],
        job=job(failed=7, end=failed("BackoffLimitExceeded", BACKOFF)),
    ),
    "a peer that never answers": Case(
        "ProtocolProblem",
        [
            pod(
                "guard",
                **ended(8, words("ProtocolProblem", "signature-invalid: the signature is not by key 12ab")),
            )
        ],
        job=job("guard", failed=7, end=failed("BackoffLimitExceeded", BACKOFF)),
    ),
    "pods are gone, only a code": Case(
        "PolicyRefused", job=job("guard", end=failed("PodFailurePolicy", GUARD_POLICY))
    ),
    "pods are gone": Case(
        "BackoffLimitExceeded", job=job(failed=7, end=failed("BackoffLimitExceeded", BACKOFF))
    ),
    "an administrator's deadline": Case(
        "DeadlineExceeded",
        job=job(end=failed("DeadlineExceeded", "Job was active longer than specified deadline")),
    ),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_endings_are_told_in_the_words_of_the_golden_file(case: str) -> None:
    observed = ENDINGS[case]
    found = ending(observed.job, observed.pods)
    assert found is not None
    assert (found.reason, found.succeeded) == (observed.reason, case == "complete")
    assert found.message == sentences("endings")[case]


def test_golden_files_have_just_the_cases() -> None:
    assert list(sentences("troubles")) == list(TROUBLES)
    assert list(sentences("endings")) == list(ENDINGS)


def test_the_last_words_of_a_pod_are_waited_for() -> None:
    """Caches of Jobs and pods are of different moments."""
    over = job(end=failed("PodFailurePolicy", POLICY))
    assert ending(over, [pod(**runs())]) is None
    assert ending(over, []) is not None


def test_a_job_that_is_not_over_has_no_ending() -> None:
    assert ending(None, []) is None
    assert ending(job(), [pod(**runs())]) is None


@given(
    st.text(max_size=5000)
    | st.builds(words, st.text(), st.text(max_size=5000))
    | st.from_regex(r'\{"reason": .*')
)
def test_whatever_a_process_leaves_is_told_in_one_line_under_a_reason_that_a_condition_takes(
    left: str,
) -> None:
    found = ending(job(end=failed("PodFailurePolicy")), [pod(**ended(7, left))])
    assert found is not None
    assert found.message == " ".join(found.message.split())
    assert len(found.message) < 4300
    assert found.reason.replace("_", "a").replace(",", "a").replace(":", "a").isalnum()
    assert found.reason.isascii()


def test_every_reason_told_is_one_of_the_table() -> None:
    known = {str(reason) for reason in Reason}
    assert {case.reason for case in TROUBLES.values()} <= known
