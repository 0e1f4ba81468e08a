"""From apply to a running aggregator: what is waited for, and how the job says it."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.agent import SiloAgent
from fedsilo.api.digest import spec_digest
from fedsilo_operator.names import agent_name, aggregator_name
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    FINALIZER,
    JOB,
    SECRET,
    SERVICE,
    SILO_AGENT,
    Ref,
    ref_of,
)
from fedsilo_operator.workloads.aggregator import public_keys_in
from tests.unit.operator.job.scene import EAST, JOB_REF, NORTH, SOUTH, Scene, manifest, public_key, silo

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
SELECTOR = {"selector": {"matchLabels": {"study": "lung"}}}


def selecting(*silos: Ref, min_silos: int | None = None) -> Scene:
    """A job that takes the silos with a label, and three of which these have it."""
    participation = {} if min_silos is None else {"minSilos": min_silos}
    labelled = [silo(ref, labels={"study": "lung"} if ref in silos else {}) for ref in (NORTH, SOUTH, EAST)]
    return Scene(manifest(silos=SELECTOR, participation=participation), labelled)


def test_suspended_agents_come_first_and_pods_much_later() -> None:
    scene = Scene()
    scene.settle()
    assert scene.job["metadata"]["finalizers"] == [FINALIZER]
    assert scene.agents() == ["north", "south"]
    assert scene.agent(NORTH)["spec"]["suspend"] is True
    assert not scene.cluster.objects(JOB)
    assert not scene.cluster.objects(SECRET)
    assert scene.phase() == "Admitting"
    assert scene.condition("Admitted") == (
        "False",
        "Admitting",
        "Waiting for the decision of silo-north/north, silo-south/south.",
    )


def test_an_agent_carries_the_frozen_job_and_the_trust() -> None:
    scene = Scene(manifest(suspend=True, ttlSecondsAfterFinished=5))
    scene.settle()
    agent = SiloAgent.model_validate(scene.agent(NORTH))
    frozen = agent.spec.job
    assert (frozen.namespace, frozen.name, frozen.uid) == ("federation", "digits", scene.uid)
    assert frozen.spec_digest == spec_digest(frozen.spec)
    assert not frozen.spec.suspend
    assert frozen.spec.ttl_seconds_after_finished is None
    assert agent.spec.trust.url == "https://digits-aggregator.federation.svc:8443"
    assert agent.spec.trust.address == scene.cluster.peek(SERVICE, AGGREGATOR)["spec"]["clusterIP"]
    assert agent.spec.trust.public_key == public_key(NORTH)


def test_an_aggregator_elsewhere_needs_no_address() -> None:
    scene = Scene(manifest(aggregator={"url": "https://federation.example:8443"}))
    scene.settle()
    trust = scene.agent(NORTH)["spec"]["trust"]
    assert trust["url"] == "https://federation.example:8443"
    assert "address" not in trust


def test_agents_are_resumed_together_and_the_aggregator_follows_when_all_run() -> None:
    scene = Scene()
    scene.settle()
    scene.admit(NORTH)
    scene.settle()
    assert [scene.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [True, True]
    scene.admit(SOUTH)
    scene.settle()
    assert [scene.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [False, False]
    assert scene.phase() == "Starting"
    scene.run(NORTH)
    scene.settle()
    assert not scene.cluster.objects(JOB)
    scene.run(SOUTH)
    scene.settle()
    assert ref_of(scene.batch()) == AGGREGATOR
    assert scene.cluster.objects(CLAIM)
    assert scene.cluster.objects(SECRET)
    scene.pod("Running", running={})
    scene.settle()
    assert scene.phase() == "Running"
    assert scene.events() == [("Normal", "Accepted"), ("Normal", "Admitted"), ("Normal", "Running")]


def test_the_configuration_holds_the_silos_in_the_order_of_the_references() -> None:
    scene = Scene(manifest((SOUTH, NORTH))).started()
    config = scene.cluster.peek(CONFIG_MAP, AGGREGATOR)
    assert list(public_keys_in(config)) == [SOUTH, NORTH]
    assert config["immutable"] is True


def test_a_silo_that_is_not_there_is_waited_for_and_named() -> None:
    scene = Scene(manifest((NORTH, Ref("clinic", "south"))))
    scene.settle()
    assert scene.phase() == "Pending"
    assert scene.condition("Accepted") == (
        "False",
        "SiloNotFound",
        "Silo clinic/south does not exist; ask the institution to create it, or make a new job without it. There is one"
        " in namespace silo-south: is that meant?",
    )
    assert scene.agents() == ["north"]
    scene.admit(NORTH)
    scene.settle()
    assert scene.agent(NORTH)["spec"]["suspend"] is True
    scene.cluster.put(silo(Ref("clinic", "south")))
    scene.settle()
    assert scene.phase() == "Admitting"
    assert ("Warning", "SiloNotFound") in scene.events()


def test_a_silo_without_a_key_is_waited_for_and_named() -> None:
    keyless = silo(SOUTH, key=False)
    scene = Scene(silos=[silo(NORTH), keyless])
    scene.settle()
    assert scene.condition("Accepted") == (
        "False",
        "KeyPending",
        "Silo silo-south/south has published no key yet; the operator is about to make one.",
    )
    assert scene.events() == [("Normal", "KeyPending")], "nobody has to do anything"
    found = {"type": "Ready", "status": "False", "reason": "KeyInvalid", "message": "Secret x is broken."}
    scene.cluster.put(keyless | {"status": {"conditions": [found]}})
    scene.settle()
    assert scene.condition("Accepted") == (
        "False",
        "SiloNotReady",
        "Silo silo-south/south has published no key, and the job waits until it has. Secret x is broken.",
    )
    assert scene.events()[-1] == ("Warning", "SiloNotReady")
    scene.cluster.put(silo(SOUTH))
    scene.settle()
    assert scene.condition("Accepted") == ("True", "Accepted", "The specification can be run.")


def test_all_objections_of_all_silos_stand_in_the_job() -> None:
    scene = Scene()
    scene.settle()
    scene.refuse(NORTH, "ApprovalPending", "Silo north: a person has to approve; kubectl fedsilo approve.")
    scene.refuse(SOUTH)
    scene.settle()
    assert scene.condition("Admitted") == (
        "False",
        "PolicyRefused",
        "Silo north: a person has to approve; kubectl fedsilo approve.\n"
        "Silo south: policy.methods allows ccvr, not fedavg; use one of these.",
    )
    assert scene.events()[-1] == ("Warning", "PolicyRefused")
    scene.refuse(NORTH, "PolicyRefused", "Silo north: policy.maxRounds is 1, the job has 3 rounds.")
    scene.settle()
    assert [reason for _, reason in scene.events()].count("PolicyRefused") == 2, (
        "the Event has all objections"
    )
    scene.admit(NORTH, SOUTH)
    scene.settle()
    assert scene.phase() == "Starting"


def test_a_key_that_changed_keeps_the_agent_as_it_was() -> None:
    """Whether the trust still holds is the silo's question; the agent is frozen."""
    scene = Scene()
    scene.settle()
    scene.cluster.put(silo(NORTH) | {"status": {"publicKey": public_key(EAST)}})
    scene.settle()
    assert scene.agent(NORTH)["spec"]["trust"]["publicKey"] == public_key(NORTH)


def test_an_unknown_method_is_for_the_aggregator_to_judge() -> None:
    scene = Scene(manifest(method={"name": "fedavgg"})).started()
    status, reason, message = scene.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("Unknown", "Unverified")
    assert message.startswith("Method fedavgg is not installed in this operator, which knows ccvr, ")
    assert scene.phase() == "Starting"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"method": {"name": "fedavg", "config": {"mu": 1}}},
            "FederatedJob digits: spec.method.config.mu: 1: is not a known field; remove it",
        ),
        (
            {"model": {"name": "lenett"}},
            'FederatedJob digits: spec.model.name: "lenett": is not a known model; did you mean lenet?',
        ),
        (
            {"training": {"rounds": 0}},
            "FederatedJob digits: spec.training.rounds: 0: is too small; use 1 or more",
        ),
        (
            {"evaluation": {"testDataset": "x"}},
            'FederatedJob digits: spec.evaluation.testDataset: "x": is not among spec.aggregator.datasets;'
            " add it there",
        ),
        (
            {"participation": {"minSilos": 3}},
            "spec.participation.minSilos 3 is more than the 2 silos of spec.silos.refs; use 2 or less.",
        ),
    ],
)
def test_what_only_another_spec_could_mend_fails_the_job(change: dict[str, Any], message: str) -> None:
    scene = Scene(manifest(**change))
    scene.settle()
    assert scene.phase() == "Failed"
    _, reason, said = scene.condition("Failed") or ("", "", "")
    assert said == message
    assert scene.condition("Accepted") == ("False", reason, message)
    assert scene.events() == [("Warning", reason)]
    assert not scene.cluster.objects(SILO_AGENT)
    assert not scene.cluster.objects(SERVICE)
    assert "finalizers" not in scene.job["metadata"]


def test_a_selector_takes_the_silos_as_they_are_labelled_until_the_start() -> None:
    scene = selecting(NORTH, SOUTH)
    scene.settle()
    assert scene.agents() == ["north", "south"]
    scene.cluster.put(silo(EAST, labels={"study": "lung"}))
    scene.cluster.put(silo(NORTH))
    scene.settle()
    assert scene.agents() == ["east", "south"]
    assert sorted(entry["name"] for entry in scene.job["status"]["silos"]) == ["east", "south"]
    scene.admit(EAST, SOUTH)
    scene.settle()
    scene.cluster.put(silo(NORTH, labels={"study": "lung"}))
    scene.cluster.put(silo(SOUTH))
    scene.settle()
    assert scene.agents() == ["east", "south"]


def test_a_selector_that_matches_nothing_says_so() -> None:
    scene = selecting()
    scene.settle()
    assert scene.condition("Accepted") == (
        "False",
        "SiloNotFound",
        "No Silo carries the labels study=lung; label the Silos that take part.",
    )


def test_a_selector_that_matches_too_few_waits() -> None:
    scene = selecting(NORTH, min_silos=2)
    scene.settle()
    assert scene.phase() == "Pending"
    assert scene.condition("Accepted") == (
        "False",
        "QuorumImpossible",
        "spec.participation.minSilos 2 is more than the 1 silo of spec.silos.selector; use 1 or less in a new job, or"
        " label more Silos.",
    )


def test_two_silos_of_one_name_are_refused() -> None:
    scene = selecting(NORTH)
    scene.cluster.put(silo(Ref("clinic", "north"), labels={"study": "lung"}))
    scene.settle()
    assert scene.condition("Accepted") == (
        "False",
        "SiloAmbiguous",
        "Silos clinic/north and silo-north/north have one name, and names are unique in a job; rename one, or take the"
        " label from it.",
    )


def test_under_a_selector_enough_silos_start_without_those_that_refuse() -> None:
    scene = selecting(NORTH, SOUTH, EAST, min_silos=2)
    scene.settle()
    scene.admit(NORTH, SOUTH)
    scene.settle()
    assert scene.phase() == "Admitting", "east has not decided"
    scene.refuse(EAST, "ApprovalPending", "Silo east: a person has to approve.")
    scene.settle()
    assert scene.phase() == "Admitting", "a person of east has not decided"
    scene.refuse(EAST)
    scene.settle()
    assert scene.phase() == "Starting"
    assert scene.condition("Admitted") == (
        "True",
        "Admitted",
        "2 silos admitted the job; it starts without silo-east/east.",
    )
    assert scene.agents() == ["north", "south"]
    entries = {entry["name"]: entry for entry in scene.job["status"]["silos"]}
    assert entries["east"]["phase"] == "LeftOut"
    assert (
        entries["east"]["message"] == "Silo east: policy.methods allows ccvr, not fedavg; use one of these."
    )


def test_under_a_selector_without_a_quorum_all_must_admit() -> None:
    scene = selecting(NORTH, SOUTH)
    scene.settle()
    scene.admit(NORTH)
    scene.refuse(SOUTH)
    scene.settle()
    assert scene.phase() == "Admitting"


def test_a_suspended_job_is_admitted_and_does_not_start() -> None:
    scene = Scene(manifest(suspend=True))
    scene.settle()
    scene.admit(NORTH, SOUTH)
    scene.settle()
    assert scene.phase() == "Suspended"
    assert scene.condition("Admitted") == ("True", "Admitted", "2 silos admitted the job.")
    assert "startTime" not in scene.job["status"]
    scene.change(suspend=False)
    scene.settle()
    assert scene.phase() == "Starting"
    assert scene.events()[-1] == ("Normal", "Resumed")


def test_trouble_of_an_agent_stands_in_the_job_with_the_silo_s_name() -> None:
    scene = Scene().started()
    text = "No node can take the trainer, which asks for 1 nvidia.com/gpu: 0/3 nodes are available."
    scene.say(
        SOUTH, "Starting", Admitted=("True", "Admitted", "admitted"), Ready=("False", "Unschedulable", text)
    )
    scene.settle()
    assert scene.condition("SilosReady") == (
        "False",
        "Unschedulable",
        f"Silo silo-north/north: its agent has not started yet.\nSilo silo-south/south: {text}",
    )
    assert scene.events()[-1] == ("Warning", "Unschedulable")


def test_names_leave_room_for_what_pods_add() -> None:
    name = agent_name(Ref("federation", "j" * 40), "uid", Ref("n", "s" * 40))
    assert len(f"{name}-trainer-xxxxx") <= 63
    assert len(f"{aggregator_name(Ref('n', 'j' * 40))}-xxxxx") <= 63
