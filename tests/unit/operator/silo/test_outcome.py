"""How a silo's part ends: with its guard, or with the failure of either component, once and for all."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import condition
from fedsilo.api.timestamps import timestamp
from fedsilo.silo.agent.component import TRAINER_EXIT_SECONDS
from fedsilo_operator.objects import POD, SILO_AGENT
from fedsilo_operator.silo.component import GUARD_END_SECONDS
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.harness import ended_status, recorded_events, started_world, suspended


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_a_job_that_failed_fails_the_agent_with_its_own_message(component: str) -> None:
    scene = started_world()
    job = scene.job(component)
    assert job is not None
    (pod,) = scene.pods_of(job)
    words = (
        '{"reason": "DataInvalid", "message": "scans/train.npz: holds no array images; name it in config"}'
    )
    pod["status"] = ended_status(3, words)
    scene.end(component, "Failed", reason="PodFailurePolicy", message="exit code 3 matched")
    scene.reconcile()
    assert (scene.phase, scene.conditions["Failed"]) == ("Failed", ("True", "DataInvalid"))
    assert recorded_events(scene).count(("Warning", "DataInvalid")) == 1
    told = {
        GUARD: ": scans/train.npz: holds no array images; name it in config.",
        TRAINER: "; its log says more: kubectl fedsilo logs digits -n federation --silo north --component trainer.",
    }
    assert scene.message == f"The {component} ended with exit code 3 (DataInvalid){told[component]}"
    assert recorded_events(scene)[-1] == ("Warning", "DataInvalid")


def test_the_network_check_is_the_trainers_start_and_may_be_its_end() -> None:
    scene = started_world()
    job = scene.job(TRAINER)
    assert job is not None
    (pod,) = scene.pods_of(job)
    waits = {"ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
    looks = {"ready": False, "state": {"running": {}}}
    pod["status"] = {"phase": "Pending", "initContainerStatuses": [looks], "containerStatuses": [waits]}
    scene.reconcile()
    assert (scene.phase, scene.message) == ("Starting", "Waiting for the trainer to run.")
    words = '{"reason": "PolicyRefused", "message": "isolation: 10.96.0.1:443 (TCP) can be reached"}'
    looked = ended_status(5, words)["containerStatuses"]
    pod["status"] = {"phase": "Failed", "initContainerStatuses": looked, "containerStatuses": [waits]}
    scene.end(TRAINER, "Failed", reason="PodFailurePolicy", message="exit code 5 matched")
    scene.reconcile()
    assert (scene.phase, scene.conditions["Failed"]) == ("Failed", ("True", "PolicyRefused"))
    assert scene.message == (
        "The trainer did not begin, since the look at its network ended with exit code 5 (PolicyRefused): "
        "isolation: 10.96.0.1:443 (TCP) can be reached."
    )


def test_a_guard_outlives_its_trainer_to_tell_the_aggregator_until_the_job_is_over() -> None:
    scene = started_world()
    scene.end(
        TRAINER, "Failed", reason="BackoffLimitExceeded", message="has reached the specified backoff limit"
    )
    scene.reconcile()
    assert not suspended(scene, GUARD)
    scene.suspend(True)
    scene.reconcile()
    assert suspended(scene, GUARD)
    assert scene.phase == "Failed"


def test_a_trainer_that_ends_before_the_job_is_over_has_failed_whatever_its_exit_code() -> None:
    """Its loader, model or method ended the process; an honest one ends because its guard is about to."""
    scene = started_world()
    scene.pass_time(3600)
    scene.end(TRAINER, "Complete")
    assert scene.reconcile().requeue_after == GUARD_END_SECONDS
    assert scene.phase == "Running"
    scene.pass_time(GUARD_END_SECONDS - 1)
    assert scene.reconcile().requeue_after == 1
    scene.pass_time(1)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Failed"]) == ("Failed", ("True", "TrainerLost"))
    assert scene.message.startswith(
        "The trainer ended with exit code 0 before the job was over; its loader, "
    )
    assert not suspended(scene, GUARD), "it reports why there is no answer"


def test_a_guard_that_ends_in_time_or_has_only_begun_again_accuses_no_trainer() -> None:
    for after, guard_ends in ((GUARD_END_SECONDS - 1, True), (3600, False)):
        scene = started_world()
        scene.pass_time(3600)
        scene.end(TRAINER, "Complete")
        scene.pass_time(after)
        if guard_ends:
            scene.end(GUARD, "Complete")
            scene.reconcile()
            assert scene.phase == "Finished"
        else:
            job = scene.job(GUARD)
            assert job is not None
            (pod,) = scene.pods_of(job)
            pod["status"]["conditions"][0]["lastTransitionTime"] = timestamp(scene.now)
            assert scene.reconcile().requeue_after == GUARD_END_SECONDS
            assert scene.phase == "Running"


def test_a_trainer_without_a_guard_gives_its_gpu_back() -> None:
    scene = started_world()
    scene.end(GUARD, "Failed", reason="PodFailurePolicy", message="exit code 5 matched")
    scene.reconcile()
    assert suspended(scene, TRAINER)


def test_a_trainer_whose_guard_is_done_may_end_by_itself() -> None:
    scene = started_world()
    scene.end(GUARD, "Complete")
    scene.suspend(True)
    assert scene.reconcile().requeue_after == TRAINER_EXIT_SECONDS
    assert not suspended(scene, TRAINER)
    scene.end(TRAINER, "Complete")
    assert scene.reconcile().requeue_after is None
    assert scene.phase == "Finished"
    assert not suspended(scene, TRAINER)


def test_a_silo_is_finished_when_its_guard_is_though_the_trainer_was_stopped() -> None:
    scene = started_world()
    scene.end(GUARD, "Complete")
    scene.suspend(True)
    scene.pass_time(TRAINER_EXIT_SECONDS - 1)
    assert scene.reconcile().requeue_after == 1
    assert not suspended(scene, TRAINER)
    scene.pass_time(1)
    scene.reconcile()
    assert suspended(scene, TRAINER)
    assert scene.phase == "Suspended"
    scene.objects[POD] = {}
    scene.reconcile()
    assert scene.phase == "Finished"


def test_an_end_is_never_taken_back() -> None:
    scene = started_world()
    scene.end(TRAINER, "Complete")
    scene.end(GUARD, "Complete")
    scene.reconcile()
    before = condition(scene.agent, "Finished")
    scene.objects = {SILO_AGENT: scene.objects[SILO_AGENT]}
    scene.suspend(True)
    scene.pass_time(3600)
    plan = scene.reconcile()
    assert plan.actions == ()
    assert plan.events == ()
    after = condition(scene.agent, "Finished")
    assert scene.phase == "Finished"
    assert before is not None
    assert after == {**before, "observedGeneration": 2}
