"""What a queue or a person suspends stays suspended, and the agent says who it was."""

from __future__ import annotations

import pytest

from fedsilo_operator.objects import JOB, POD
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from fedsilo_operator.workloads.suspension import QUEUE, is_suspended, suspender, without_queue
from tests.unit.operator.silo.harness import (
    NAME,
    World,
    recorded_events,
    started_world,
    suspended,
    world,
)

TRAINER_JOB = f"{NAME}-trainer"


def suspend_trainer(scene: World, manager: str | None = "kueue") -> None:
    """Another suspends the trainer's Job, whose pod goes."""
    scene.set_suspend(TRAINER_JOB, True, manager)
    scene.objects[POD] = {ref: pod for ref, pod in scene.objects[POD].items() if TRAINER not in ref.name}
    scene.reconcile()


def queue(scene: World) -> None:
    """The trainer's Job is in a queue."""
    job = scene.job(TRAINER)
    assert job is not None
    job["metadata"]["labels"][QUEUE] = "team"


def test_a_suspended_trainer_stays_so_and_takes_its_guard_along() -> None:
    scene = started_world()
    suspend_trainer(scene)
    assert suspended(scene, TRAINER)
    assert suspended(scene, GUARD)
    assert (scene.phase, scene.conditions["Ready"]) == ("Starting", ("False", "SuspendedBy"))
    assert scene.message == (
        f"The trainer waits: field manager kueue has suspended Job silo-north/{TRAINER_JOB} (spec.suspend)."
        " It runs as soon as the Job is resumed there."
    )
    assert recorded_events(scene)[-1] == ("Normal", "SuspendedBy")
    scene.reconcile()
    assert scene.plan().settled
    scene.set_suspend(TRAINER_JOB, False, "kueue")
    scene.reconcile()
    assert not suspended(scene, GUARD)
    scene.run_all()
    scene.reconcile()
    assert scene.phase == "Running"


def test_what_an_admission_webhook_suspends_has_no_manager_and_is_the_queue_s() -> None:
    scene = started_world()
    queue(scene)
    suspend_trainer(scene, None)
    assert scene.conditions["Ready"] == ("False", "SuspendedBy")
    assert "queue team has suspended Job" in scene.message


def test_the_operator_resumes_what_it_has_suspended_itself_and_owns_nothing_then() -> None:
    scene = started_world()
    scene.suspend(True)
    scene.reconcile()
    assert suspended(scene, TRAINER)
    scene.suspend(False)
    scene.reconcile()
    job = scene.job(TRAINER)
    assert job is not None
    assert not is_suspended(job)
    assert job["metadata"]["managedFields"] == []


def test_a_job_that_another_has_resumed_is_suspended_all_the_same_when_the_job_is() -> None:
    scene = started_world()
    scene.set_suspend(TRAINER_JOB, False, "kubectl-edit")
    for _ in range(2):
        scene.suspend(True)
        scene.reconcile()
        assert suspended(scene, TRAINER)
        scene.suspend(False)
        scene.reconcile()
        assert not suspended(scene, TRAINER)


@pytest.mark.parametrize("waits", [False, True])
def test_a_job_in_a_queue_leaves_it_when_it_is_stopped_and_comes_again(waits: bool) -> None:
    scene = started_world()
    queue(scene)
    if waits:
        suspend_trainer(scene)
    scene.suspend(True)
    scene.reconcile()
    assert scene.job(TRAINER) is None
    assert suspended(scene, GUARD)
    scene.objects[POD] = {}
    scene.reconcile()
    assert scene.plan().settled, "not made again before it is to run"
    scene.suspend(False)
    scene.reconcile()
    assert scene.job(TRAINER) is not None
    assert not suspended(scene, GUARD)


def test_a_trainer_whose_guard_is_done_is_suspended_and_not_made_again() -> None:
    scene = started_world()
    queue(scene)
    scene.end(GUARD, "Complete")
    scene.pass_time(31)
    scene.reconcile()
    assert suspended(scene, TRAINER)
    scene.objects[POD] = {}
    scene.reconcile()
    assert scene.phase == "Finished"


def test_a_guard_is_in_no_queue_whatever_its_pods_are_labelled() -> None:
    labels = {"team": "blue", QUEUE: "team"}
    made = {"metadata": {"labels": labels}, "spec": {"template": {"metadata": {"labels": labels}}}}
    job = without_queue(made)
    assert job["metadata"]["labels"] == {"team": "blue"}
    assert job["spec"] == made["spec"]


def test_a_job_that_nobody_has_suspended_waits_for_nobody() -> None:
    scene = world()
    scene.reconcile()
    assert all(suspender(job) is None for job in scene.objects[JOB].values())
