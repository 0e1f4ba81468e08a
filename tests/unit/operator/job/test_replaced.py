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
from tests.unit.operator.job.harness import JobHarness, complete
from tests.unit.operator.job.objects import EAST, JOB_REF, NORTH, SOUTH, manifest, public_key, silo

AGGREGATOR = Ref(JOB_REF.namespace, "digits-aggregator")


@pytest.mark.parametrize("kind", [SERVICE, CONFIG_MAP, JOB, SILO_AGENT, CLAIM])
def test_what_somebody_deletes_comes_back_as_it_was(kind: Kind) -> None:
    harness = JobHarness().running()
    found = harness.cluster.objects(kind)[0]
    harness.cluster.remove(kind, ref_of(found))
    harness.cluster.collect_garbage()
    harness.settle()
    if kind == CLAIM:
        harness.pod("Failed", terminated={"exitCode": 1})
        harness.settle()
    again = harness.cluster.peek(kind, ref_of(found))
    assert uid_of(again) != uid_of(found)
    assert again.get("spec") == found.get("spec")
    assert again.get("data") == found.get("data")


def test_the_silos_of_the_start_are_known_when_agent_and_configuration_are_both_gone() -> None:
    harness = JobHarness().running()
    harness.cluster.remove(CONFIG_MAP, AGGREGATOR)
    harness.cluster.remove(SILO_AGENT, ref_of(harness.agent(SOUTH)))
    harness.settle()
    assert harness.agents() == ["north", "south"]
    config = harness.cluster.peek(CONFIG_MAP, AGGREGATOR)
    assert list(public_keys_in(config).items()) == [
        (NORTH, public_key(NORTH)),
        (SOUTH, public_key(SOUTH)),
    ]


def test_a_silo_whose_agent_configuration_and_key_are_all_gone_is_named() -> None:
    harness = JobHarness().running()
    harness.cluster.remove(CONFIG_MAP, AGGREGATOR)
    harness.cluster.remove(SILO_AGENT, ref_of(harness.agent(SOUTH)))
    harness.cluster.remove(SILO_KIND, SOUTH)
    harness.settle()
    assert harness.condition("SilosReady") == (
        "False",
        "SiloNotFound",
        "Silo silo-south/south: the Silo is gone; create it again.",
    )
    harness.cluster.put(silo(SOUTH))
    harness.settle()
    assert harness.agents() == ["north", "south"]


def test_a_silo_that_is_gone_is_reported_alike_while_its_agent_is_still_there() -> None:
    """A namespace that goes takes the one before the other, in either order."""
    harness = JobHarness().running()
    harness.cluster.remove(SILO_KIND, SOUTH)
    missing = ("False", "SiloNotFound", "Silo silo-south/south does not exist; create it.")
    harness.say(SOUTH, "Pending", Admitted=missing, Ready=missing)
    harness.settle()
    assert harness.agents() == ["north", "south"]
    first = harness.condition("SilosReady")
    harness.cluster.remove(SILO_AGENT, ref_of(harness.agent(SOUTH)))
    harness.settle()
    assert first == harness.condition("SilosReady")
    assert first == (
        "False",
        "SiloNotFound",
        "Silo silo-south/south: the Silo is gone; restore it with its key.",
    )


def test_no_agent_is_made_where_there_is_no_silo_any_more() -> None:
    """Its namespace may be gone as well, and a write that always fails would keep the status from being written."""
    harness = JobHarness().running()
    harness.cluster.remove(SILO_KIND, SOUTH)
    harness.cluster.remove(SILO_AGENT, ref_of(harness.agent(SOUTH)))
    harness.settle()
    assert harness.agents() == ["north"]
    status, reason, _ = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "SiloNotFound")
    harness.cluster.put(silo(SOUTH))
    harness.settle()
    assert harness.agents() == ["north", "south"]


def test_a_service_under_another_address_is_replaced() -> None:
    harness = JobHarness().running()
    service = harness.cluster.peek(SERVICE, AGGREGATOR)
    harness.cluster.remove(SERVICE, AGGREGATOR)
    harness.cluster.put(service | {"spec": service["spec"] | {"clusterIP": "10.96.99.99"}})
    harness.settle()
    assert harness.cluster.peek(SERVICE, AGGREGATOR)["spec"]["clusterIP"] == service["spec"]["clusterIP"]


def test_what_an_earlier_job_of_the_name_left_is_removed_and_not_taken_over() -> None:
    harness = JobHarness()
    stale = {"app.kubernetes.io/managed-by": "fedsilo-operator", JOB_UID: "another"}
    earlier = {
        "apiVersion": harness.job["apiVersion"],
        "kind": "FederatedJob",
        "name": JOB_REF.name,
        "uid": "another",
    }
    config = metadata(AGGREGATOR, stale, None) | {"ownerReferences": [earlier | {"controller": True}]}
    harness.cluster.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.json": "{}"}, "metadata": config}
    )
    harness.settle()
    assert not harness.cluster.objects(CONFIG_MAP)
    harness.start_job()
    assert harness.cluster.peek(CONFIG_MAP, AGGREGATOR)["metadata"]["labels"][JOB_UID] == harness.uid


def test_a_claim_that_is_not_the_job_s_is_neither_used_nor_deleted() -> None:
    harness = JobHarness()
    stale = {"app.kubernetes.io/managed-by": "fedsilo-operator", JOB_UID: "another"}
    claim = claim_ref(harness.job)
    metadata = {"name": claim.name, "namespace": claim.namespace, "labels": stale}
    harness.cluster.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata})
    harness.settle()
    harness.admit(NORTH, SOUTH)
    harness.settle()
    assert harness.condition("Accepted") == (
        "False",
        "VolumeMissing",
        f"PersistentVolumeClaim {claim} has the name of this job's volume but not its label"
        f" fedsilo.io/job-uid={harness.uid}, so it may hold the work of another. Delete it if nobody needs it, or"
        " delete the job and create it again: its claim then has another name.",
    )
    assert harness.events()[-1] == ("Warning", "VolumeMissing")
    assert all(agent["spec"]["suspend"] for agent in harness.cluster.objects(SILO_AGENT)), "no GPU is taken"
    assert harness.cluster.peek(CLAIM, claim)["metadata"]["labels"] == stale
    harness.cluster.remove(CLAIM, claim)
    harness.settle()
    assert harness.phase() == "Starting"


def test_a_claim_that_lost_its_label_is_not_mounted_again() -> None:
    harness = JobHarness().running()
    claim = harness.cluster.peek(CLAIM, claim_ref(harness.job))
    claim["metadata"]["labels"][JOB_UID] = "another"
    harness.cluster.put(claim)
    harness.cluster.remove(JOB, AGGREGATOR)
    harness.cluster.collect_garbage()
    harness.settle()
    assert not harness.cluster.objects(JOB)
    status, reason, _ = harness.condition("Running") or ("", "", "")
    assert (status, reason) == ("False", "VolumeMissing")


def test_a_process_that_ended_is_no_news_until_its_job_says_how() -> None:
    """Its pod is not ready any more, and still Running, until the kubelet has cleared up."""
    harness = JobHarness().running()
    pod = harness.pod("Running", terminated={"exitCode": 0})
    not_ready = [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]
    harness.cluster.put(pod | {"status": pod["status"] | {"conditions": not_ready}}, "kubelet")
    assert harness.step().settled
    complete(harness)
    assert [reason for _, reason in harness.events()].count("Running") == 1


def test_a_pod_of_an_earlier_aggregator_is_waited_for() -> None:
    harness = JobHarness().running()
    harness.cluster.remove(JOB, AGGREGATOR)
    harness.settle()
    assert not harness.cluster.objects(JOB), "its pod may still write to the volume"
    text = "The aggregator waits for an earlier aggregator's pod to end."
    assert harness.condition("Running") == ("False", "Starting", text)
    harness.cluster.collect_garbage()
    harness.settle()
    assert harness.cluster.objects(JOB)


def test_a_silo_that_is_left_out_stays_so() -> None:
    labels = {"study": "lung"}
    job = manifest(silos={"selector": {"matchLabels": labels}}, participation={"minSilos": 2})
    harness = JobHarness(job, [silo(ref, labels=labels) for ref in (NORTH, SOUTH, EAST)])
    harness.settle()
    harness.refuse(EAST)
    harness.admit(NORTH, SOUTH)
    harness.settle()
    harness.cluster.remove(CONFIG_MAP, AGGREGATOR)
    harness.settle()
    assert harness.agents() == ["north", "south"]
    harness.run(NORTH, SOUTH)
    harness.settle()
    harness.pod("Running", running={})
    assert {entry["name"]: entry["phase"] for entry in complete(harness).job["status"]["silos"]} == {
        "north": "Running",
        "south": "Running",
        "east": "LeftOut",
    }
