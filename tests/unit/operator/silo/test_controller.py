"""The silo controller over a cluster in memory, in virtual time: what wakes it, what it reads, what it writes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fedsilo.api.agent import Proposal
from fedsilo.api.observed import Object, condition, uid_of
from fedsilo.api.proposal import proposal_digest
from fedsilo.silo.decision import read_decision
from fedsilo.silo.offer import read_offer
from fedsilo_operator.cluster.interface import CallRefused
from fedsilo_operator.diagnosis.pods import SUCCESS_SECONDS
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    EVENT,
    JOB,
    NETWORK_POLICY,
    POD,
    SECRET,
    SILO_KIND,
    Kind,
    Ref,
    ref_of,
)
from fedsilo_operator.silo.controller import SiloController
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.silo.bench import KEY_REF, Bench, fresh_object, virtually
from tests.unit.operator.silo.harness import (
    AGENT_REF,
    NAME,
    RUNNING,
    SETTINGS,
    SILO_REF,
    agent,
    ended_status,
    pod_of,
    silo,
    started_world,
)


@virtually
async def test_a_silos_key_is_made_and_published(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("True", "KeyReady"))
    assert bench.silo()["status"]["publicKey"].startswith("ed25519:")
    assert await bench.writes(2000) == []


@virtually
async def test_silos_of_one_namespace_share_a_key(bench: Bench) -> None:
    second = fresh_object(silo())
    second["metadata"]["name"] = "cardiology"
    bench.cluster.put(fresh_object(silo()))
    bench.cluster.put(second)
    other = Ref(SILO_REF.namespace, "cardiology")
    await bench.wait_until(lambda: bench.cluster.peek(SILO_KIND, other)["status"]["publicKey"])
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    assert len(bench.cluster.objects(SECRET)) == 1
    own = {"conditions": 0, "offer": 0}
    assert bench.cluster.peek(SILO_KIND, other)["status"] | own == bench.silo()["status"] | own


@virtually
async def test_an_offer_is_signed_anew_when_the_silo_offers_something_else(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["offer"])
    before = bench.silo()["status"]["offer"]
    key = bench.silo()["status"]["publicKey"]
    assert "maxRounds" not in read_offer(before, str(SILO_REF), key).policy
    await asyncio.sleep(2000)
    assert bench.silo()["status"]["offer"] == before
    bench.cluster.put(fresh_object(silo({"maxRounds": 30})))
    await bench.wait_until(lambda: bench.silo()["status"]["offer"] != before)
    offer = read_offer(bench.silo()["status"]["offer"], str(SILO_REF), key)
    assert offer.policy["maxRounds"] == 30


@virtually
async def test_a_lost_key_is_reported_until_it_is_restored(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("True", "KeyReady"))
    secret = bench.cluster.peek(SECRET, KEY_REF)
    bench.cluster.remove(SECRET, KEY_REF)
    await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("False", "KeyMissing"), 700)
    assert not bench.cluster.objects(SECRET)
    bench.cluster.put(fresh_object(secret))
    await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("True", "KeyReady"))


@virtually
async def test_an_agent_starts_and_then_nothing_is_written(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.job(GUARD))
    bench.pod(TRAINER, **RUNNING)
    bench.pod(GUARD, **RUNNING)
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("True", "Running"))
    assert await bench.writes(2000) == []


@virtually
async def test_a_decision_is_signed_once_and_the_key_is_read_for_that_alone(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.agent()["status"]["decision"])
    decision, public_key = bench.agent()["status"]["decision"], bench.silo()["status"]["publicKey"]
    assert read_decision(decision, public_key).decision == "Admitted"
    read: list[Kind] = []

    def watch_reads(verb: str, kind: Kind) -> None:
        if verb == "get":
            read.append(kind)

    bench.cluster.faults = watch_reads
    bench.pod(TRAINER, **RUNNING)
    bench.pod(GUARD, **RUNNING)
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("True", "Running"))
    assert SECRET not in read
    assert bench.agent()["status"]["decision"] == decision


@virtually
async def test_an_agent_admitted_under_an_earlier_version_gets_its_decision_signed(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.agent()["status"]["decision"])
    earlier = bench.agent()
    del earlier["status"]["decision"]
    bench.cluster.put(earlier, "fedsilo-operator")
    await bench.wait_until(lambda: bench.agent()["status"]["decision"])


@virtually
async def test_children_that_are_deleted_come_back(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.job(GUARD))
    for kind, name in ((CONFIG_MAP, NAME), (NETWORK_POLICY, f"{NAME}-trainer"), (JOB, f"{NAME}-guard")):
        ref = Ref(AGENT_REF.namespace, name)
        before = uid_of(bench.cluster.peek(kind, ref))
        bench.cluster.remove(kind, ref)
        await bench.wait_until(partial(bench.is_another, kind, ref, before))


@virtually
async def test_the_institution_wakes_its_agents_by_editing_the_silo(bench: Bench) -> None:
    offer = fresh_object(silo({"manualApproval": True}))
    bench.cluster.put(offer)
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.agent()["status"]["phase"] == "ApprovalPending")
    proposal = Proposal.model_validate(bench.agent()["status"]["proposal"])
    approval = {
        "job": proposal.uid,
        "specDigest": proposal.spec_digest,
        "proposal": proposal_digest(proposal),
        "decision": "Approved",
    }
    offer["spec"]["policy"]["approvals"] = [approval]
    bench.cluster.put(offer)
    await bench.wait_until(lambda: bench.agent()["status"]["phase"] == "Starting")


@virtually
async def test_an_agent_that_came_before_its_silo_is_woken_by_it(bench: Bench) -> None:
    bench.cluster.put(fresh_object(agent()))
    await bench.wait_until(lambda: bench.agent()["status"]["phase"] == "Pending")
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.agent()["status"]["phase"] == "Refused")
    assert (condition(bench.agent(), "Admitted") or {})["reason"] == "TrustBroken"


@virtually
async def test_what_only_events_report_is_found_without_a_change_of_the_pod(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.job(GUARD))
    bench.pod(TRAINER, **RUNNING)
    guard = bench.pod(GUARD, phase="Pending", containerStatuses=[])
    await asyncio.sleep(1)
    bench.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": AGENT_REF.namespace, "name": "mount"},
            "involvedObject": {"uid": uid_of(guard)},
            "reason": "FailedMount",
            "message": 'MountVolume.SetUp failed for volume "key" : secret "fedsilo-signing-key" not found',
            "lastTimestamp": "2026-03-01T12:00:10Z",
        },
        "kubelet",
    )
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("False", "ConfigMissing"))
    told = [event["reason"] for event in bench.cluster.objects(EVENT) if event.get("type") == "Warning"]
    assert told == ["ConfigMissing"]


@virtually
async def test_an_agent_that_failed_stays_failed_when_all_its_children_are_gone(bench: Bench) -> None:
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()
    await bench.wait_until(lambda: bench.job(GUARD))
    bench.pod(TRAINER, **ended_status(3, '{"reason": "DataInvalid", "message": "no scans"}'))
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": ""}
    bench.cluster.put(
        bench.job(TRAINER) | {"status": {"failed": 1, "conditions": [failed]}}, "job-controller"
    )
    await bench.wait_until(lambda: bench.agent()["status"]["phase"] == "Failed")
    before = bench.agent()["status"]
    for kind in (POD, JOB, NETWORK_POLICY, CONFIG_MAP):
        for obj in bench.cluster.objects(kind):
            bench.cluster.remove(kind, ref_of(obj))
    assert await bench.writes(2000) == []
    assert bench.agent()["status"] == before


async def admit_agent(bench: Bench) -> None:
    """An agent that its silo admits, just made."""
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    bench.apply_agent()


def refusing(bench: Bench, name: str) -> None:
    error = CallRefused('networkpolicies "x" is forbidden: exceeded quota: policies')
    bench.cluster.refuses = lambda obj: error if obj["metadata"]["name"] == name else None


@virtually
async def test_what_a_silos_namespace_refuses_is_reported_and_retried(bench: Bench) -> None:
    refusing(bench, f"{NAME}-guard")
    await admit_agent(bench)
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("False", "ApiRefused"))
    message = bench.agent()["status"]["message"]
    assert f"refuses NetworkPolicy {AGENT_REF.namespace}/{NAME}-guard: " in message
    assert "exceeded quota: policies. Change what it names" in message
    assert not bench.cluster.objects(JOB), "no pod without its network policies"
    told = [event["reason"] for event in bench.cluster.objects(EVENT) if event["type"] == "Warning"]
    assert told == ["ApiRefused"]
    bench.cluster.refuses = lambda _obj: None
    await bench.wait_until(lambda: bench.job(GUARD), 200)
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("False", "Starting"))


@virtually
async def test_pods_are_stopped_whatever_else_is_refused(bench: Bench) -> None:
    await admit_agent(bench)
    await bench.wait_until(lambda: bench.job(GUARD))
    refusing(bench, f"{NAME}-trainer")
    stopped = bench.agent()
    stopped["spec"]["suspend"] = True
    bench.cluster.put(stopped)
    await bench.wait_until(lambda: bench.job(GUARD)["spec"].get("suspend"))
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("False", "ApiRefused"))
    bench.cluster.refuses = lambda _obj: None
    await bench.wait_until(lambda: bench.job(TRAINER)["spec"].get("suspend"), 200)


@virtually
async def test_an_object_of_somebody_else_under_a_childs_name_is_neither_used_nor_changed(
    bench: Bench,
) -> None:
    labels = agent()["metadata"]["labels"]
    theirs = {"name": NAME, "namespace": AGENT_REF.namespace}
    made = bench.cluster.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": theirs | {"labels": labels}, "data": {"x": "y"}}
    )
    await admit_agent(bench)
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("False", "NameTaken"))
    assert bench.agent()["status"]["message"].startswith(f"ConfigMap {AGENT_REF} is there already")
    assert bench.cluster.peek(CONFIG_MAP, AGENT_REF) == made
    assert not bench.cluster.objects(JOB)
    bench.cluster.remove(CONFIG_MAP, AGENT_REF)
    await bench.wait_until(lambda: bench.job(GUARD), 200)


@virtually
async def test_a_claim_of_somebody_else_gets_no_private_state(bench: Bench) -> None:
    theirs = {"name": NAME, "namespace": AGENT_REF.namespace, "labels": {"app": "backup"}}
    made = bench.cluster.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": theirs})
    await admit_agent(bench)
    await bench.wait_until(lambda: bench.ready_condition(bench.agent()) == ("False", "NameTaken"))
    assert bench.cluster.peek(CLAIM, AGENT_REF) == made


@virtually
async def test_a_key_whose_secret_is_refused_is_reported(bench: Bench) -> None:
    refusing(bench, SIGNING_KEY)
    bench.cluster.put(fresh_object(silo()))
    await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("False", "ApiRefused"))
    bench.cluster.refuses = lambda _obj: None
    await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("True", "KeyReady"), 200)


def test_a_part_is_looked_at_when_the_last_of_it_has_succeeded() -> None:
    scene = started_world()
    controller = SiloController(FakeCluster(), scene, SETTINGS)
    watches = {watch.kind: watch for watch in controller.watches()}

    def patience(kind: Kind, obj: Object, **status: Any) -> float:
        found = watches[kind].patience
        assert found is not None
        return found(obj, scene.put(obj | {"status": status}))

    done = [{"type": name, "status": "True"} for name in ("SuccessCriteriaMet", "Complete")]
    trainer, guard = scene.job(TRAINER), scene.job(GUARD)
    assert trainer is not None
    assert guard is not None
    assert patience(POD, pod_of(guard, "x"), **ended_status(0)) == SUCCESS_SECONDS
    assert patience(POD, pod_of(guard, "x"), **ended_status(1)) == 0
    assert patience(POD, pod_of(guard, "x"), **RUNNING) == 0
    assert patience(JOB, guard, conditions=done[:1]) == SUCCESS_SECONDS
    assert patience(JOB, guard, conditions=done) == SUCCESS_SECONDS, "the trainer goes on"
    assert patience(JOB, trainer, conditions=[{"type": "Failed", "status": "True"}]) == 0
    assert patience(JOB, trainer, conditions=done) == 0
