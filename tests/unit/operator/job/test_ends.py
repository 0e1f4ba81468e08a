"""How a job ends, and what stays; suspension, deletion, and the time to live."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from fedsilo_operator.objects import (
    CLAIM,
    FEDERATED_JOB,
    JOB,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SILO_AGENT,
    Ref,
    ref_of,
)
from fedsilo_operator.plan import Create
from tests.unit.operator.job.scene import JOB_REF, NORTH, SOUTH, Scene, complete, manifest

AGGREGATOR = Ref(JOB_REF.namespace, "digits-aggregator")


def left_words(reason: str, message: str) -> dict[str, object]:
    """How a process ends that has left its own words."""
    return {"exitCode": 4, "message": json.dumps({"reason": reason, "message": message})}


def test_a_complete_job_says_where_the_model_is_and_frees_the_gpus() -> None:
    scene = complete(Scene().running())
    assert scene.phase() == "Complete"
    claim = scene.cluster.objects(CLAIM)[0]["metadata"]["name"]
    assert scene.condition("Complete") == (
        "True",
        "Complete",
        f"The model is in PersistentVolumeClaim {claim}.",
    )
    assert scene.condition("Running") == ("False", "Finished", "The job is over.")
    assert [agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT)] == [True, True]
    assert scene.events()[-1] == ("Normal", "Complete")
    assert scene.batch()["spec"].get("suspend", False) is False


def test_a_failed_job_has_the_aggregator_s_own_words() -> None:
    scene = Scene().running()
    scene.pod(
        "Failed", terminated=left_words("DeadlineExceeded", "1 of 2 silos answered; still awaited: b/south")
    )
    scene.end("Failed", "PodFailurePolicy", failed=1)
    scene.settle()
    status, reason, message = scene.condition("Failed") or ("", "", "")
    assert (status, reason) == ("True", "DeadlineExceeded")
    assert "1 of 2 silos answered; still awaited: b/south" in message
    assert scene.events()[-1] == ("Warning", "DeadlineExceeded")
    assert [agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT)] == [True, True]


def test_tries_that_are_used_up_are_told_with_the_last_trouble() -> None:
    scene = Scene().running()
    scene.pod("Failed", terminated={"exitCode": 137, "reason": "OOMKilled"})
    scene.settle()
    assert (scene.condition("Running") or ("", "", ""))[1] == "OutOfMemory"
    for pod in scene.cluster.objects(POD):
        scene.cluster.remove(POD, ref_of(pod))
    scene.end("Failed", "BackoffLimitExceeded", failed=7)
    scene.settle()
    _, reason, message = scene.condition("Failed") or ("", "", "")
    assert reason == "BackoffLimitExceeded"
    assert "Before that: The aggregator used more memory than it may and was killed." in message


def test_a_lost_quorum_fails_the_job_at_once_and_names_the_silos() -> None:
    scene = Scene().running()
    scene.fail(SOUTH, "The trainer ended with exit code 3 (DataInvalid): scans/train.npz has no labels.")
    scene.settle()
    assert scene.condition("Failed") == (
        "True",
        "QuorumLost",
        "1 of 2 silos left, the quorum is 2. Silo silo-south/south failed: The trainer ended with exit code 3"
        " (DataInvalid): scans/train.npz has no labels.",
    )
    assert scene.batch()["spec"]["suspend"] is True


def test_a_job_goes_on_without_a_silo_that_the_quorum_does_not_need() -> None:
    scene = Scene(manifest(participation={"minSilos": 1})).running()
    scene.fail(SOUTH)
    scene.settle()
    assert scene.phase() == "Running"
    assert scene.condition("SilosReady") == (
        "False",
        "SiloFailed",
        "Silo silo-south/south failed: The trainer ended with exit code 3.",
    )
    assert complete(scene).phase() == "Complete"


def test_an_agent_that_fails_before_the_aggregator_starts_is_not_waited_for() -> None:
    scene = Scene(manifest(participation={"minSilos": 1})).started()
    scene.fail(SOUTH)
    scene.run(NORTH)
    scene.settle()
    assert scene.cluster.objects(JOB)


def test_an_image_name_that_is_none_fails_the_job() -> None:
    scene = Scene().started()
    scene.run(NORTH, SOUTH)
    scene.settle()
    scene.pod("Pending", waiting={"reason": "InvalidImageName"})
    scene.settle()
    assert scene.phase() == "Failed"
    assert (scene.condition("Failed") or ("", "", ""))[1] == "ImageNotFound"
    assert scene.batch()["spec"]["suspend"] is True


def test_what_hinders_the_aggregator_is_said_and_looked_at_again() -> None:
    scene = Scene().started()
    scene.run(NORTH, SOUTH)
    scene.settle()
    scene.pod("Pending", waiting={"reason": "ImagePullBackOff", "message": "manifest unknown"})
    scene.settle()
    status, reason, message = scene.condition("Running") or ("", "", "")
    assert (status, reason) == ("False", "ImageNotFound")
    assert "spec.aggregator.image" in message
    assert scene.events()[-1] == ("Warning", "ImageNotFound")
    assert (scene.plan().requeue_after or 0) > 0


def test_a_secret_that_the_pod_misses_is_made_again() -> None:
    scene = Scene().started()
    scene.run(NORTH, SOUTH)
    scene.settle()
    secret = scene.cluster.objects(SECRET)[0]
    scene.cluster.remove(SECRET, ref_of(secret))
    pod = scene.pod("Pending", waiting={"reason": "ContainerCreating"})
    scene.settle()
    assert not scene.cluster.objects(SECRET), "nobody says yet that it is missing"
    text = f'MountVolume.SetUp failed for volume "keys" : secret "{ref_of(secret).name}" not found'
    scene.warn(pod, "FailedMount", text)
    plan = scene.step()
    assert [type(action) for action in plan.actions] == [Create]
    assert scene.cluster.objects(SECRET)[0]["data"] == secret["data"]


def test_suspension_stops_the_pods_and_resuming_waits_for_the_agents_again() -> None:
    scene = Scene().running()
    scene.change(suspend=True)
    scene.settle()
    assert scene.phase() == "Suspended"
    assert scene.batch()["spec"]["suspend"] is True
    assert [agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT)] == [True, True]
    scene.cluster.remove(POD, ref_of(scene.cluster.objects(POD)[0]))
    scene.change(suspend=False)
    for ref in (NORTH, SOUTH):
        scene.say(
            ref, "Suspended", Admitted=("True", "Admitted", ""), Ready=("False", "Suspended", "No pods.")
        )
    scene.settle()
    assert [agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT)] == [False, False]
    assert scene.batch()["spec"]["suspend"] is True
    scene.run(NORTH, SOUTH)
    scene.settle()
    assert scene.batch()["spec"]["suspend"] is False
    assert [reason for _, reason in scene.events()][-2:] == ["Suspended", "Resumed"]
    assert scene.condition("Admitted") == ("True", "Admitted", "2 silos admitted the job.")


def test_a_pod_whose_account_was_made_anew_is_replaced() -> None:
    """Its token is of the account that is gone."""
    scene = Scene().running()
    scene.cluster.remove(SERVICE_ACCOUNT, AGGREGATOR)
    scene.step()
    assert scene.cluster.peek(SERVICE_ACCOUNT, AGGREGATOR)
    scene.settle()
    assert scene.batch()["spec"]["suspend"] is True
    scene.pod("Failed", terminated={"exitCode": 143})
    scene.settle()
    assert scene.batch()["spec"]["suspend"] is False
    scene.pod("Running", running={})
    scene.settle()
    assert scene.batch()["spec"]["suspend"] is False
    assert scene.phase() == "Running"


def test_nothing_takes_an_end_back() -> None:
    scene = complete(Scene().running())
    before = scene.job["status"]
    scene.fail(NORTH)
    scene.cluster.remove(JOB, AGGREGATOR)
    scene.cluster.remove(SERVICE, AGGREGATOR)
    scene.change(suspend=True)
    scene.settle()
    after = scene.job["status"]
    assert after["conditions"] == before["conditions"]
    assert after["completionTime"] == before["completionTime"]
    assert after["phase"] == "Complete"
    assert not scene.cluster.objects(JOB), "nothing of a job that is over is made again"
    assert after["silos"][0]["phase"] == "Failed", "what an agent says is still told"


@pytest.mark.parametrize("lifetime", [0, 3600])
def test_the_time_to_live_begins_at_the_end_and_spares_the_model(lifetime: int) -> None:
    scene = complete(Scene(manifest(ttlSecondsAfterFinished=lifetime)).running()) if lifetime else None
    if scene is None:
        scene = Scene(manifest(ttlSecondsAfterFinished=0)).running()
        scene.pod("Succeeded", terminated={"exitCode": 0})
        scene.end("Complete")
        scene.step()
    assert scene.plan().requeue_after is None or 0 < (scene.plan().requeue_after or 0) <= lifetime
    scene.now += timedelta(seconds=lifetime)
    for _ in range(5):
        scene.step()
    assert not scene.cluster.objects(FEDERATED_JOB)
    assert not scene.cluster.objects(SILO_AGENT)
    scene.cluster.collect_garbage()
    assert scene.cluster.objects(CLAIM)
    assert not scene.cluster.objects(SERVICE)


def test_a_deleted_job_takes_its_agents_first() -> None:
    scene = Scene().running()
    scene.cluster.remove(FEDERATED_JOB, JOB_REF)
    plan = scene.step()
    assert {action.kind for action in plan.actions if hasattr(action, "kind")} == {SILO_AGENT}
    assert scene.phase() == "Terminating"
    scene.step()
    assert not scene.cluster.objects(FEDERATED_JOB)
    assert not scene.cluster.objects(SILO_AGENT)


def test_a_job_that_never_started_goes_too() -> None:
    scene = Scene(manifest(training={"rounds": 0}))
    scene.settle()
    scene.cluster.remove(FEDERATED_JOB, JOB_REF)
    assert not scene.cluster.objects(FEDERATED_JOB)
    scene = Scene(silos=[])
    scene.settle()
    scene.cluster.remove(FEDERATED_JOB, JOB_REF)
    scene.settle()
    assert not scene.cluster.objects(FEDERATED_JOB)


def test_a_namespace_that_is_gone_holds_no_job_up() -> None:
    scene = Scene().running()
    scene.cluster.remove_namespace(NORTH.namespace)
    scene.cluster.remove(FEDERATED_JOB, JOB_REF)
    scene.settle()
    assert not scene.cluster.objects(FEDERATED_JOB)
