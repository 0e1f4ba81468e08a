"""Troubles and endings of pods: from what scheduler, kubelet and Job controller write to what a person reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.observed import Object
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import running
from fedsilo_operator.reasons import Reason
from tests.unit.operator.golden import sentences

JOB_UID = "4f8a9a52-0000-4000-8000-000000000001"
POD_UID = "9d1f40a1-0000-4000-8000-000000000002"
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


def looking(state: dict[str, Any], phase: str = "Pending") -> dict[str, Any]:
    """The container that looks at the network is in a state, so the trainer's own waits."""
    waits = {"ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
    return {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [{"ready": False, "state": state}],
        "containerStatuses": [waits],
    }


def looked(code: int, message: str = "", **terminated: Any) -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "message": message} | terminated
    return looking({"terminated": end}, "Failed")


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
    "image of the look at the network not found": Case(
        "ImageNotFound", [pod(**looking({"waiting": {"reason": "ErrImagePull", "message": "not found"}}))]
    ),
    "image of the look at the network runs as root": Case(
        "PodRefused",
        [
            pod(
                **looking(
                    {
                        "waiting": {
                            "reason": "CreateContainerConfigError",
                            "message": "container has runAsNonRoot and image will run as root",
                        }
                    }
                )
            )
        ],
    ),
    "look at the network crashed": Case(
        "Restarting", [pod(**looked(1, words("InternalError", "KeyError: 'x'")))], job=job(failed=1)
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
    "will not be tried again": Case("DataInvalid", [pod(**ended(3))]),
    "crashed once too often": Case("BackoffLimitExceeded", [pod(**ended(139))], job=job(failed=7)),
    "crashed with last words": Case(
        "Restarting",
        [pod(**ended(1, words("InternalError", "RuntimeError: CUDA error: device-side assert triggered")))],
        job=job(failed=3),
    ),
    "aggregator crashed with last words": Case(
        "Restarting",
        [pod("aggregator", **ended(1, words("InternalError", "OSError: disk is gone")))],
        job=job("aggregator", failed=1),
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
    "evicted by its node, which says how much the trainer had used": Case(
        "Evicted",
        [
            pod(
                **disrupted(
                    "TerminationByKubelet",
                    "",
                    reason="Evicted",
                    message="The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
                    "Container trainer was using 4711Ki, request is 0, has larger consumption of memory. ",
                )
            )
        ],
    ),
    "evicted because its scratch space is full": Case(
        "Evicted",
        [
            pod(
                **ended(137),
                reason="Evicted",
                message='Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ',
            )
        ],
        job=job(failed=1),
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
    "looks at its network": Case("", [pod(**looking({"running": {}}))]),
    "has looked at its network": Case("", [pod(**looking({"terminated": {"exitCode": 0}}))]),
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
    found = diagnose(observed.job, observed.pods, observed.events)
    assert found is not None
    assert found.reason == observed.reason
    assert found.message == sentences("troubles")[case]


@pytest.mark.parametrize("case", FINE)
def test_what_is_on_its_way_is_no_trouble(case: str) -> None:
    observed = FINE[case]
    assert diagnose(observed.job, observed.pods, observed.events) is None


def test_waiting_between_two_pulls_says_the_same_as_the_pull() -> None:
    told = sentences("troubles")
    assert told["image not found"] == told["image not found, between two tries"]


def test_only_what_waiting_cannot_mend_is_fatal() -> None:
    permanent = {
        name
        for name, case in TROUBLES.items()
        if (found := diagnose(case.job, case.pods, case.events)) and found.permanent
    }
    assert permanent == {"image that is no reference"}


def test_a_node_that_does_not_answer_has_no_pod_that_runs() -> None:
    assert running([pod(**runs())])
    assert not running([pod(**runs("False"))])
    assert not running([being_deleted(pod(**runs()))])
    cleared_up = runs("False", container=False) | {
        "containerStatuses": [{"ready": False, "state": {"terminated": {"exitCode": 0}}}]
    }
    assert running([pod(**cleared_up)]), "its Job is about to say that it is done"
    assert not running([being_deleted(pod(**cleared_up))])


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
    "network is open": Case(
        "PolicyRefused",
        [pod(**looked(5, words("PolicyRefused", "isolation: 10.96.0.1:443 (TCP) can be reached")))],
        job=job(end=failed("PodFailurePolicy", POLICY)),
    ),
    "an old guard image has no look at the network": Case(
        "BackoffLimitExceeded",
        [pod(**looked(128, 'exec: "fedsilo-isolation": executable file not found', reason="StartError"))],
        job=job(failed=7, end=failed("BackoffLimitExceeded", BACKOFF)),
    ),
    "a reason that nobody knows": Case(
        "InternalError",
        [pod("guard", **ended(1, words("A" * 2000, "secrets")))],
        job=job("guard", end=failed("PodFailurePolicy", "no code")),
    ),
    "a guard's defect": Case(
        "InternalError",
        [pod("guard", **ended(1, words("InternalError", "KeyError: 'what a trainer wrote'")))],
        job=job("guard", failed=7, end=failed("BackoffLimitExceeded", BACKOFF)),
    ),
    "program that is not in the image": Case(
        "BackoffLimitExceeded",
        [pod(**ended(128, 'exec: "fedsilo-trainer": executable file not found', reason="StartError"))],
        job=job(failed=7, end=failed("BackoffLimitExceeded", BACKOFF)),
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
    found = outcome(observed.job, observed.pods)
    assert found is not None
    assert (found.diagnosis.reason, found.succeeded) == (observed.reason, case == "complete")
    assert found.diagnosis.message == sentences("endings")[case]


def test_golden_files_have_just_the_cases() -> None:
    assert list(sentences("troubles")) == list(TROUBLES)
    assert list(sentences("endings")) == list(ENDINGS)


def test_the_last_words_of_a_pod_are_waited_for() -> None:
    """Caches of Jobs and pods are of different moments."""
    over = job(end=failed("PodFailurePolicy", POLICY))
    assert outcome(over, [pod(**runs())]) is None
    assert outcome(over, []) is not None


def test_a_job_that_is_not_over_has_no_ending() -> None:
    assert outcome(None, []) is None
    assert outcome(job(), [pod(**runs())]) is None


LEFT = (
    st.text(max_size=5000)
    | st.builds(words, st.text(), st.text(max_size=5000))
    | st.from_regex(r'\{"reason": .*')
)
CODES = st.integers(0, 255)


@given(LEFT, CODES)
def test_of_what_a_trainer_leaves_only_a_known_reason_is_told(left: str, code: int) -> None:
    """The words would pass the guard and its audit log."""
    silent = words("DataInvalid", "")
    job_failed = job(end=failed("PodFailurePolicy"))
    found = outcome(job_failed, [pod(**ended(code, left))])
    known = outcome(job_failed, [pod(**ended(code, silent))])
    none = outcome(job_failed, [pod(**ended(code))])
    assert known is not None
    assert found in (none, known)


@given(st.sampled_from(("guard", "aggregator")), LEFT, CODES)
def test_whatever_a_process_leaves_is_told_in_one_short_line_under_a_known_reason(
    component: str, left: str, code: int
) -> None:
    found = outcome(job(component, end=failed("PodFailurePolicy")), [pod(component, **ended(code, left))])
    assert found is not None
    assert found.diagnosis.message == " ".join(found.diagnosis.message.split())
    assert len(found.diagnosis.message) < 1200
    assert found.diagnosis.reason in KNOWN


def test_errors_of_every_class_keep_their_reason() -> None:
    for reason in KNOWN:
        found = outcome(job(end=failed("PodFailurePolicy")), [pod(**ended(9, words(reason, "secrets")))])
        assert found is not None
        assert found.diagnosis.reason == reason
        assert "secrets" not in found.diagnosis.message


KNOWN = {
    "AuditBroken",
    "DataInvalid",
    "DeadlineExceeded",
    "InternalError",
    "JobFailed",
    "ManifestInvalid",
    "MethodError",
    "PolicyRefused",
    "ProtocolProblem",
    "QuorumLost",
    "SiloFailed",
    "WorkdirConflict",
}


def test_every_reason_told_is_one_of_the_table() -> None:
    known = {str(reason) for reason in Reason}
    assert {case.reason for case in TROUBLES.values()} <= known
