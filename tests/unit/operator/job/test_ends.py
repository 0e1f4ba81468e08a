"""How a job ends, and what stays; suspension, deletion, and the time to live."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from fedsilo.api.observed import uid_of
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    FEDERATED_JOB,
    JOB,
    JOB_UID,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Ref,
    ref_of,
)
from fedsilo_operator.plan import Create
from fedsilo_operator.workloads.aggregator import claim_ref, public_keys_in
from fedsilo_operator.workloads.pod import metadata
from tests.unit.operator.job.scene import EAST, JOB_REF, NORTH, SOUTH, Scene, manifest, public_key, silo

AGGREGATOR = Ref(JOB_REF.namespace, "digits-aggregator")


def left_words(reason: str, message: str) -> dict[str, object]:
    """How a process ends that has left its own words."""
    return {"exitCode": 4, "message": json.dumps({"reason": reason, "message": message})}


def complete(scene: Scene) -> Scene:
    scene.pod("Succeeded", terminated={"exitCode": 0})
    scene.end("Complete")
    scene.settle()
    return scene


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


@pytest.mark.parametrize("kind", [SERVICE, CONFIG_MAP, JOB, SILO_AGENT, CLAIM])
def test_what_somebody_deletes_comes_back_as_it_was(kind: Kind) -> None:
    scene = Scene().running()
    found = scene.cluster.objects(kind)[0]
    scene.cluster.remove(kind, ref_of(found))
    scene.cluster.collect_garbage()
    scene.settle()
    if kind == CLAIM:
        scene.pod("Failed", terminated={"exitCode": 1})
        scene.settle()
    again = scene.cluster.peek(kind, ref_of(found))
    assert uid_of(again) != uid_of(found)
    assert again.get("spec") == found.get("spec")
    assert again.get("data") == found.get("data")


def test_the_silos_of_the_start_are_known_when_agent_and_configuration_are_both_gone() -> None:
    scene = Scene().running()
    scene.cluster.remove(CONFIG_MAP, AGGREGATOR)
    scene.cluster.remove(SILO_AGENT, ref_of(scene.agent(SOUTH)))
    scene.settle()
    assert scene.agents() == ["north", "south"]
    config = scene.cluster.peek(CONFIG_MAP, AGGREGATOR)
    assert list(public_keys_in(config).items()) == [
        (NORTH, public_key(NORTH)),
        (SOUTH, public_key(SOUTH)),
    ]


def test_a_silo_whose_agent_configuration_and_key_are_all_gone_is_named() -> None:
    scene = Scene().running()
    scene.cluster.remove(CONFIG_MAP, AGGREGATOR)
    scene.cluster.remove(SILO_AGENT, ref_of(scene.agent(SOUTH)))
    scene.cluster.remove(SILO_KIND, SOUTH)
    scene.settle()
    assert scene.condition("SilosReady") == (
        "False",
        "SiloNotFound",
        "Silo silo-south/south: the Silo is gone; restore it with its key.",
    )
    scene.cluster.put(silo(SOUTH))
    scene.settle()
    assert scene.agents() == ["north", "south"]


def test_a_silo_that_is_gone_is_told_in_the_same_words_while_its_agent_is_still_there() -> None:
    """A namespace that goes takes the one before the other, in either order."""
    scene = Scene().running()
    scene.cluster.remove(SILO_KIND, SOUTH)
    missing = ("False", "SiloNotFound", "Silo silo-south/south does not exist; create it.")
    scene.say(SOUTH, "Pending", Admitted=missing, Ready=missing)
    scene.settle()
    assert scene.agents() == ["north", "south"]
    first = scene.condition("SilosReady")
    scene.cluster.remove(SILO_AGENT, ref_of(scene.agent(SOUTH)))
    scene.settle()
    assert first == scene.condition("SilosReady")
    assert first == (
        "False",
        "SiloNotFound",
        "Silo silo-south/south: the Silo is gone; restore it with its key.",
    )


def test_no_agent_is_made_where_there_is_no_silo_any_more() -> None:
    """Its namespace may be gone as well, and a write that always fails would keep the status from being written."""
    scene = Scene().running()
    scene.cluster.remove(SILO_KIND, SOUTH)
    scene.cluster.remove(SILO_AGENT, ref_of(scene.agent(SOUTH)))
    scene.settle()
    assert scene.agents() == ["north"]
    status, reason, _ = scene.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "SiloNotFound")
    scene.cluster.put(silo(SOUTH))
    scene.settle()
    assert scene.agents() == ["north", "south"]


def test_a_service_under_another_address_is_replaced() -> None:
    scene = Scene().running()
    service = scene.cluster.peek(SERVICE, AGGREGATOR)
    scene.cluster.remove(SERVICE, AGGREGATOR)
    scene.cluster.put(service | {"spec": service["spec"] | {"clusterIP": "10.96.99.99"}})
    scene.settle()
    assert scene.cluster.peek(SERVICE, AGGREGATOR)["spec"]["clusterIP"] == service["spec"]["clusterIP"]


def test_what_an_earlier_job_of_the_name_left_is_removed_and_not_taken_over() -> None:
    scene = Scene()
    stale = {"app.kubernetes.io/managed-by": "fedsilo-operator", JOB_UID: "another"}
    earlier = {
        "apiVersion": scene.job["apiVersion"],
        "kind": "FederatedJob",
        "name": JOB_REF.name,
        "uid": "another",
    }
    config = metadata(AGGREGATOR, stale, None) | {"ownerReferences": [earlier | {"controller": True}]}
    scene.cluster.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.json": "{}"}, "metadata": config}
    )
    scene.settle()
    assert not scene.cluster.objects(CONFIG_MAP)
    scene.started()
    assert scene.cluster.peek(CONFIG_MAP, AGGREGATOR)["metadata"]["labels"][JOB_UID] == scene.uid


def test_a_claim_that_is_not_the_job_s_is_neither_used_nor_deleted() -> None:
    scene = Scene()
    stale = {"app.kubernetes.io/managed-by": "fedsilo-operator", JOB_UID: "another"}
    claim = claim_ref(scene.job)
    metadata = {"name": claim.name, "namespace": claim.namespace, "labels": stale}
    scene.cluster.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata})
    scene.settle()
    scene.admit(NORTH, SOUTH)
    scene.settle()
    assert scene.condition("Accepted") == (
        "False",
        "VolumeMissing",
        f"PersistentVolumeClaim {claim} has the name of this job's volume but not its label"
        f" fedsilo.io/job-uid={scene.uid}, so it may hold the work of another. Delete it if nobody needs it, or delete"
        " the job and create it again: its claim then has another name.",
    )
    assert scene.events()[-1] == ("Warning", "VolumeMissing")
    assert all(agent["spec"]["suspend"] for agent in scene.cluster.objects(SILO_AGENT)), "no GPU is taken"
    assert scene.cluster.peek(CLAIM, claim)["metadata"]["labels"] == stale
    scene.cluster.remove(CLAIM, claim)
    scene.settle()
    assert scene.phase() == "Starting"


def test_a_claim_that_lost_its_label_is_not_mounted_again() -> None:
    scene = Scene().running()
    claim = scene.cluster.peek(CLAIM, claim_ref(scene.job))
    claim["metadata"]["labels"][JOB_UID] = "another"
    scene.cluster.put(claim)
    scene.cluster.remove(JOB, AGGREGATOR)
    scene.cluster.collect_garbage()
    scene.settle()
    assert not scene.cluster.objects(JOB)
    status, reason, _ = scene.condition("Running") or ("", "", "")
    assert (status, reason) == ("False", "VolumeMissing")


def test_a_process_that_ended_is_no_news_until_its_job_says_how() -> None:
    """Its pod is not ready any more, and still Running, until the kubelet has cleared up."""
    scene = Scene().running()
    pod = scene.pod("Running", terminated={"exitCode": 0})
    not_ready = [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]
    scene.cluster.put(pod | {"status": pod["status"] | {"conditions": not_ready}}, "kubelet")
    assert scene.step().settled
    complete(scene)
    assert [reason for _, reason in scene.events()].count("Running") == 1


def test_a_pod_of_an_earlier_aggregator_is_waited_for() -> None:
    scene = Scene().running()
    scene.cluster.remove(JOB, AGGREGATOR)
    scene.settle()
    assert not scene.cluster.objects(JOB), "its pod may still write to the volume"
    text = "The aggregator waits for an earlier aggregator's pod to end."
    assert scene.condition("Running") == ("False", "Starting", text)
    scene.cluster.collect_garbage()
    scene.settle()
    assert scene.cluster.objects(JOB)


def test_a_silo_that_is_left_out_stays_so() -> None:
    labels = {"study": "lung"}
    job = manifest(silos={"selector": {"matchLabels": labels}}, participation={"minSilos": 2})
    scene = Scene(job, [silo(ref, labels=labels) for ref in (NORTH, SOUTH, EAST)])
    scene.settle()
    scene.refuse(EAST)
    scene.admit(NORTH, SOUTH)
    scene.settle()
    scene.cluster.remove(CONFIG_MAP, AGGREGATOR)
    scene.settle()
    assert scene.agents() == ["north", "south"]
    scene.run(NORTH, SOUTH)
    scene.settle()
    scene.pod("Running", running={})
    assert {entry["name"]: entry["phase"] for entry in complete(scene).job["status"]["silos"]} == {
        "north": "Running",
        "south": "Running",
        "east": "LeftOut",
    }
