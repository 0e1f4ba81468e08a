"""What scheduler, kubelet and Job controller say in a pod's first seconds is told only once it has lasted."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.reasons import Reason
from tests.unit.operator.diagnosis.observed import (
    JOB_UID,
    Case,
    ended_status,
    event,
    job,
    pod,
    unscheduled_status,
    waiting,
)

CREATING = waiting("ContainerCreating")
NO_SECRET = 'MountVolume.SetUp failed for volume "key" : secret "fedsilo-signing-key" not found'


def time_at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{clock}Z")


LASTING = {
    "no room while another pod leaves": (
        Case("Unschedulable", [pod(**unscheduled_status("no node", since="12:00:30"))]),
        "12:00:34",
    ),
    "no room, and a scheduler that does not say since when": (
        Case(
            "Unschedulable",
            [
                pod(
                    phase="Pending",
                    conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
                )
            ],
        ),
        "12:00:04",
    ),
    "no registry, from the first second": (
        Case("ImageNotFound", [pod(**waiting("ErrImagePull", "dial tcp: i/o timeout"))]),
        "12:00:30",
    ),
    "no image, after a pull of five minutes": (
        Case(
            "ImageNotFound",
            [pod(**waiting("ErrImagePull", "connection reset"))],
            [event("Failed", "Failed to pull image", first="12:05:00", at="12:05:00")],
        ),
        "12:05:30",
    ),
    "a Secret that comes a moment after the pod": (
        Case("ConfigMissing", [pod("guard", **CREATING)], [event("FailedMount", NO_SECRET)], job("guard")),
        "12:00:11",
    ),
    "a node whose network is not ready": (
        Case("PodRefused", [pod(**CREATING)], [event("FailedCreatePodSandBox", "network: not ready")]),
        "12:00:11",
    ),
    "a quota that another pod is about to leave": (
        Case("PodRefused", [], [event("FailedCreate", "Error creating: exceeded quota", uid=JOB_UID)]),
        "12:00:05",
    ),
    "a quota that was full before, and is again": (
        Case(
            "PodRefused",
            [pod(made="12:00:50", phase="Succeeded")],
            [event("FailedCreate", "Error creating: exceeded quota", uid=JOB_UID)],
        ),
        "12:00:54",
    ),
}


@pytest.mark.parametrize("case", LASTING)
def test_trouble_counts_once_it_has_lasted_and_the_operator_is_woken_then(case: str) -> None:
    observed, told_at = LASTING[case]
    due = time_at(told_at)
    for early in (1.0, 0.5):
        held = diagnose(observed.job, observed.pods, observed.events, due - timedelta(seconds=early))
        assert (held.diagnosis, held.patience_seconds) == (None, early)
    told = diagnose(observed.job, observed.pods, observed.events, due)
    assert told.diagnosis is not None
    assert (told.diagnosis.reason, told.patience_seconds) == (observed.reason, None)


def test_what_waiting_cannot_mend_is_told_at_once() -> None:
    found = diagnose(job(), [pod(**waiting("InvalidImageName"))], [], time_at("12:00:00")).diagnosis
    assert found is not None
    assert found.permanent


@pytest.mark.parametrize(
    "answer",
    [
        'failed to resolve reference "hub.example/a:1": hub.example/a:1: not found',
        "reading manifest 1 in hub.example/a: manifest unknown",
        "pull access denied, repository does not exist or may require authorization",
    ],
)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_that_a_registry_does_not_have_is_told_at_once(reason: str, answer: str) -> None:
    found = diagnose(job(), [pod(**waiting(reason, answer))], [], time_at("12:00:00")).diagnosis
    assert found is not None
    assert (found.reason, found.permanent) == (Reason.IMAGE_NOT_FOUND, False)


def test_meanwhile_the_crash_before_is_what_is_told() -> None:
    pods = [pod(uid="first", made="11:59:00", **ended_status(1)), pod(**unscheduled_status("no node"))]
    found = diagnose(job(failed=1), pods, [], time_at("12:00:01"))
    assert found.diagnosis is not None
    assert (found.diagnosis.reason, found.patience_seconds) == (Reason.RESTARTING, 3)


def test_a_mount_that_has_succeeded_since_is_no_trouble_while_the_image_is_pulled() -> None:
    mounted = {"type": "PodReadyToStartContainers", "status": "True"}
    pulling = pod("guard", **CREATING | {"conditions": [*CREATING["conditions"], mounted]})
    events = [event("FailedMount", NO_SECRET), event("FailedCreatePodSandBox", "network: not ready")]
    assert diagnose(job("guard"), [pulling], events, time_at("12:09:00")).diagnosis is None
