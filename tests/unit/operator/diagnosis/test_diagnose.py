"""What keeps a pod from running: from what scheduler, kubelet and Job controller write to what a person reads."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.lean import lean_copy
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.pods import running
from fedsilo_operator.reasons import Reason
from tests.unit.operator.diagnosis.observed import (
    IMAGE,
    JOB_UID,
    LATER_TIME,
    Case,
    being_deleted,
    disrupted_status,
    ended_status,
    event,
    job,
    looked_status,
    looking,
    pod,
    runs,
    unscheduled_status,
    waiting,
    words,
)
from tests.unit.operator.golden import sentences


def limited_pod(component: str, limit: str) -> Object:
    """A pod that was killed at a limit which LimitRanger has set, as its note says."""
    found = pod(component, **ended_status(137, reason="OOMKilled"))
    note = f"LimitRanger plugin set: cpu request for container {component}; cpu, memory limit for container {component}"
    found["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": note}
    found["spec"]["containers"][0]["resources"] = {"limits": {"memory": limit}}
    return found


CREATING = waiting("ContainerCreating")
MOUNT = 'MountVolume.SetUp failed for volume "{0}" : {1}'

DIAGNOSES = {
    "no GPU": Case(
        "Unschedulable",
        [
            pod(
                **unscheduled_status(
                    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu. no "
                    "new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for "
                    "scheduling."
                )
            )
        ],
    ),
    "claim does not exist": Case(
        "VolumeMissing",
        [pod(**unscheduled_status('0/1 nodes are available: persistentvolumeclaim "scans" not found.'))],
    ),
    "claim is not bound": Case(
        "VolumeMissing",
        [
            pod(
                **unscheduled_status(
                    "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
                )
            )
        ],
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
        "Restarting", [pod(**looked_status(1, words("InternalError", "KeyError: 'x'")))], job=job(failed=1)
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
    "out of memory": Case("OutOfMemory", [pod(**ended_status(137, reason="OOMKilled"))], job=job(failed=1)),
    "out of the memory that a LimitRange gives": Case(
        "OutOfMemory",
        [limited_pod("trainer", "512Mi")],
        job=job(failed=1),
    ),
    "aggregator out of memory": Case(
        "OutOfMemory",
        [pod("aggregator", **ended_status(137, reason="OOMKilled"))],
        job=job("aggregator", failed=1),
    ),
    "crashed, and starts again": Case("Restarting", [pod(**ended_status(139))], job=job(failed=1)),
    "will not be tried again": Case("DataInvalid", [pod(**ended_status(3))]),
    "crashed once too often": Case("BackoffLimitExceeded", [pod(**ended_status(139))], job=job(failed=7)),
    "crashed with last words": Case(
        "Restarting",
        [
            pod(
                **ended_status(
                    1, words("InternalError", "RuntimeError: CUDA error: device-side assert triggered")
                )
            )
        ],
        job=job(failed=3),
    ),
    "aggregator crashed with last words": Case(
        "Restarting",
        [pod("aggregator", **ended_status(1, words("InternalError", "OSError: disk is gone")))],
        job=job("aggregator", failed=1),
    ),
    "crashed, and the next pod is on its way": Case(
        "Restarting",
        [pod(uid="first", made="11:59:00", **ended_status(1, "Segmentation fault")), pod(**CREATING)],
        job=job(failed=1),
    ),
    "evicted by its node": Case(
        "Evicted",
        [
            pod(
                **disrupted_status(
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
                **disrupted_status(
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
                **ended_status(137),
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
                    **disrupted_status(
                        "PreemptionByScheduler",
                        "default-scheduler: preempting to accommodate a higher priority pod",
                        "Running",
                    )
                )
            )
        ],
    ),
    "node drained": Case(
        "Evicted", [pod(**disrupted_status("EvictionByEvictionAPI", "Eviction API: evicting"))]
    ),
    "node lost, and the pod is given up": Case(
        "NodeLost",
        [
            being_deleted(
                pod(
                    **disrupted_status(
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

FINE_CASES: dict[str, Case] = {
    "no Job's pod yet": Case(""),
    "pod is new": Case("", [pod(phase="Pending")]),
    "container is being made": Case("", [pod(**CREATING)]),
    "container runs, and is ready soon": Case("", [pod(**runs("False", container=False))]),
    "looks at its network": Case("", [pod(**looking({"running": {}}))]),
    "has looked at its network": Case("", [pod(**looking({"terminated": {"exitCode": 0}}))]),
    "runs": Case("", [pod(**runs())]),
    "runs after a crash": Case(
        "", [pod(uid="first", made="11:00:00", **ended_status(1)), pod(**runs())], job=job(failed=1)
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


@pytest.mark.parametrize("case", DIAGNOSES)
def test_diagnoses_are_reported_in_the_words_of_the_golden_file(case: str) -> None:
    """Pods are as the operator's cache keeps them, without what it never reads."""
    observed = DIAGNOSES[case]
    pods = [lean_copy({"kind": "Pod"} | found) for found in observed.pods]
    found = diagnose(observed.job, pods, observed.events, LATER_TIME).diagnosis
    assert found is not None
    assert found.reason == observed.reason
    assert found.message == sentences("diagnoses")[case]


@pytest.mark.parametrize("case", FINE_CASES)
def test_what_is_on_its_way_needs_no_diagnosis(case: str) -> None:
    observed = FINE_CASES[case]
    assert diagnose(observed.job, observed.pods, observed.events, LATER_TIME).diagnosis is None


def test_waiting_between_two_pulls_says_the_same_as_the_pull() -> None:
    told = sentences("diagnoses")
    assert told["image not found"] == told["image not found, between two tries"]


def test_only_what_waiting_cannot_mend_is_permanent() -> None:
    permanent = {
        name
        for name, case in DIAGNOSES.items()
        if (found := diagnose(case.job, case.pods, case.events, LATER_TIME).diagnosis) and found.permanent
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


def test_the_golden_file_has_just_the_cases() -> None:
    assert list(sentences("diagnoses")) == list(DIAGNOSES)


def test_every_reason_reported_is_one_of_the_table() -> None:
    known = {str(reason) for reason in Reason}
    assert {case.reason for case in DIAGNOSES.values()} <= known
