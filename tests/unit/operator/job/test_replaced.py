"""What was deleted comes back, what belongs to another is left alone, and what is out of date is replaced."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import uid_of
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    JOB,
    JOB_UID,
    SERVICE,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Ref,
    ref_of,
)
from fedsilo_operator.workloads.aggregator import claim_ref, public_keys_in
from fedsilo_operator.workloads.pod import metadata
from tests.unit.operator.job.scene import (
    EAST,
    JOB_REF,
    NORTH,
    SOUTH,
    Scene,
    complete,
    manifest,
    public_key,
    silo,
)

AGGREGATOR = Ref(JOB_REF.namespace, "digits-aggregator")


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
