"""From apply to a running aggregator: what is waited for, and how the job says it."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.agent import SiloAgent
from fedsilo.api.digest import spec_digest
from fedsilo.silo.rotation import sign_rotation
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
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import (
    EAST,
    JOB_REF,
    KEYS,
    NORTH,
    SOUTH,
    START,
    manifest,
    public_key,
    published_offer,
    silo,
)

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
SELECTOR = {"selector": {"matchLabels": {"study": "lung"}}}


def selecting(*silos: Ref, min_silos: int | None = None) -> JobHarness:
    """A job that takes the silos with a label, and three of which these have it."""
    participation = {} if min_silos is None else {"minSilos": min_silos}
    labelled = [silo(ref, labels={"study": "lung"} if ref in silos else {}) for ref in (NORTH, SOUTH, EAST)]
    return JobHarness(manifest(silos=SELECTOR, participation=participation), labelled)


def test_suspended_agents_come_first_and_pods_much_later() -> None:
    harness = JobHarness()
    harness.settle()
    assert harness.job["metadata"]["finalizers"] == [FINALIZER]
    assert harness.agents() == ["north", "south"]
    assert harness.agent(NORTH)["spec"]["suspend"] is True
    assert not harness.cluster.objects(JOB)
    assert not harness.cluster.objects(SECRET)
    assert harness.phase() == "Admitting"
    assert harness.condition("Admitted") == (
        "False",
        "Admitting",
        "Waiting for the decision of silo-north/north, silo-south/south.",
    )


def test_an_agent_carries_the_frozen_job_and_the_trust() -> None:
    harness = JobHarness(manifest(suspend=True, ttlSecondsAfterFinished=5))
    harness.settle()
    agent = SiloAgent.model_validate(harness.agent(NORTH))
    frozen = agent.spec.job
    assert (frozen.namespace, frozen.name, frozen.uid) == ("federation", "digits", harness.uid)
    assert frozen.spec_digest == spec_digest(frozen.spec)
    assert not frozen.spec.suspend
    assert frozen.spec.ttl_seconds_after_finished is None
    assert agent.spec.trust.url == "https://digits-aggregator.federation.svc:8443"
    assert agent.spec.trust.address == harness.cluster.peek(SERVICE, AGGREGATOR)["spec"]["clusterIP"]
    assert agent.spec.trust.public_key == public_key(NORTH)


def test_an_aggregator_elsewhere_needs_no_address() -> None:
    harness = JobHarness(manifest(aggregator={"url": "https://federation.example:8443"}))
    harness.settle()
    trust = harness.agent(NORTH)["spec"]["trust"]
    assert trust["url"] == "https://federation.example:8443"
    assert "address" not in trust


def test_agents_are_resumed_together_and_the_aggregator_follows_when_all_run() -> None:
    harness = JobHarness()
    harness.settle()
    harness.admit(NORTH)
    harness.settle()
    assert [harness.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [True, True]
    harness.admit(SOUTH)
    harness.settle()
    assert [harness.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [False, False]
    assert harness.phase() == "Starting"
    harness.run(NORTH)
    harness.settle()
    assert not harness.cluster.objects(JOB)
    harness.run(SOUTH)
    harness.settle()
    assert ref_of(harness.batch()) == AGGREGATOR
    assert harness.cluster.objects(CLAIM)
    assert harness.cluster.objects(SECRET)
    harness.pod("Running", running={})
    harness.settle()
    assert harness.phase() == "Running"
    assert harness.events() == [("Normal", "Accepted"), ("Normal", "Admitted"), ("Normal", "Running")]


def test_the_configuration_holds_the_silos_in_the_order_of_the_references() -> None:
    harness = JobHarness(manifest((SOUTH, NORTH))).start_job()
    config = harness.cluster.peek(CONFIG_MAP, AGGREGATOR)
    assert list(public_keys_in(config)) == [SOUTH, NORTH]
    assert config["immutable"] is True


def test_a_silo_that_is_not_there_is_waited_for_and_named() -> None:
    harness = JobHarness(manifest((NORTH, Ref("clinic", "south"))))
    harness.settle()
    assert harness.phase() == "Pending"
    assert harness.condition("Accepted") == (
        "False",
        "SiloNotFound",
        "Silo clinic/south does not exist; ask the institution to create it, or make a new job without it. There is one"
        " in namespace silo-south: is that meant?",
    )
    assert harness.agents() == ["north"]
    harness.admit(NORTH)
    harness.settle()
    assert harness.agent(NORTH)["spec"]["suspend"] is True
    harness.cluster.put(silo(Ref("clinic", "south")))
    harness.settle()
    assert harness.phase() == "Admitting"
    assert ("Warning", "SiloNotFound") in harness.events()


def test_a_silo_without_a_key_is_waited_for_and_named() -> None:
    keyless = silo(SOUTH, key=False)
    harness = JobHarness(silos=[silo(NORTH), keyless])
    harness.settle()
    assert harness.condition("Accepted") == (
        "False",
        "KeyPending",
        "Silo silo-south/south has published no key yet; the operator is about to make one.",
    )
    assert harness.events() == [("Normal", "KeyPending")], "nobody has to do anything"
    found = {"type": "Ready", "status": "False", "reason": "KeyInvalid", "message": "Secret x is broken."}
    harness.cluster.put(keyless | {"status": {"conditions": [found]}})
    harness.settle()
    assert harness.condition("Accepted") == (
        "False",
        "SiloNotReady",
        "Silo silo-south/south has published no key, and the job waits until it has. Secret x is broken.",
    )
    assert harness.events()[-1] == ("Warning", "SiloNotReady")
    harness.cluster.put(silo(SOUTH))
    harness.settle()
    assert harness.condition("Accepted") == ("True", "Accepted", "The specification can be run.")


def test_all_objections_of_all_silos_stand_in_the_job() -> None:
    harness = JobHarness()
    harness.settle()
    harness.refuse(NORTH, "ApprovalPending", "Silo north: a person has to approve; kubectl fedsilo approve.")
    harness.refuse(SOUTH)
    harness.settle()
    assert harness.condition("Admitted") == (
        "False",
        "PolicyRefused",
        "Silo north: a person has to approve; kubectl fedsilo approve.\n"
        "Silo south: policy.methods allows ccvr, not fedavg; use one of these.",
    )
    assert harness.events()[-1] == ("Warning", "PolicyRefused")
    harness.refuse(NORTH, "PolicyRefused", "Silo north: policy.maxRounds is 1, the job has 3 rounds.")
    harness.settle()
    assert [reason for _, reason in harness.events()].count("PolicyRefused") == 2, (
        "the Event has all objections"
    )
    harness.admit(NORTH, SOUTH)
    harness.settle()
    assert harness.phase() == "Starting"


def test_a_key_that_changed_keeps_the_agent_as_it_was() -> None:
    """Whether the trust still holds is the silo's question; the agent is frozen."""
    harness = JobHarness()
    harness.settle()
    harness.cluster.put(silo(NORTH) | {"status": {"publicKey": public_key(EAST)}})
    harness.settle()
    assert harness.agent(NORTH)["spec"]["trust"]["publicKey"] == public_key(NORTH)


@pytest.mark.parametrize("started", [False, True])
def test_an_agent_is_made_again_with_a_key_that_its_silo_has_announced_before_the_start(
    started: bool,
) -> None:
    harness = JobHarness()
    harness.settle()
    if started:
        harness.admit(NORTH, SOUTH)
        harness.settle()
    rotation = sign_rotation(str(NORTH), KEYS[NORTH], KEYS[EAST], START)
    renewed = silo(NORTH) | {"status": {**published_offer(silo(NORTH), EAST), "rotations": [rotation]}}
    harness.cluster.put(renewed)
    harness.settle()
    expected = public_key(NORTH if started else EAST)
    assert harness.agent(NORTH)["spec"]["trust"]["publicKey"] == expected
    assert harness.agent(NORTH)["spec"]["suspend"] is not started


def test_an_unknown_method_is_for_the_aggregator_to_judge() -> None:
    harness = JobHarness(manifest(method={"name": "fedavgg"})).start_job()
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("Unknown", "Unverified")
    assert message.startswith("Method fedavgg is not installed in this operator, which knows ccvr, ")
    assert harness.phase() == "Starting"


def test_a_transform_that_the_operator_lacks_is_for_the_images_of_the_job_to_judge() -> None:
    harness = JobHarness(manifest(transforms=[{"name": "signs"}])).start_job()
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("Unknown", "Unverified")
    assert message.startswith("Of spec.transforms, signs is not installed in this operator. ")
    assert harness.phase() == "Starting"


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
            "FederatedJob digits: spec.training.rounds: 0: is too small: fedavg has nothing to do without training; "
            "use 1 or more",
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
    harness = JobHarness(manifest(**change))
    harness.settle()
    assert harness.phase() == "Failed"
    _, reason, said = harness.condition("Failed") or ("", "", "")
    assert said == message
    assert harness.condition("Accepted") == ("False", reason, message)
    assert harness.events() == [("Warning", reason)]
    assert not harness.cluster.objects(SILO_AGENT)
    assert not harness.cluster.objects(SERVICE)
    assert "finalizers" not in harness.job["metadata"]


def test_a_selector_takes_the_silos_as_they_are_labelled_until_the_start() -> None:
    harness = selecting(NORTH, SOUTH)
    harness.settle()
    assert harness.agents() == ["north", "south"]
    harness.cluster.put(silo(EAST, labels={"study": "lung"}))
    harness.cluster.put(silo(NORTH))
    harness.settle()
    assert harness.agents() == ["east", "south"]
    assert sorted(entry["name"] for entry in harness.job["status"]["silos"]) == ["east", "south"]
    harness.admit(EAST, SOUTH)
    harness.settle()
    harness.cluster.put(silo(NORTH, labels={"study": "lung"}))
    harness.cluster.put(silo(SOUTH))
    harness.settle()
    assert harness.agents() == ["east", "south"]


def test_a_selector_that_matches_nothing_reports_it() -> None:
    harness = selecting()
    harness.settle()
    assert harness.condition("Accepted") == (
        "False",
        "SiloNotFound",
        "No Silo carries the labels study=lung; label the Silos that take part.",
    )


def test_a_selector_that_matches_too_few_waits() -> None:
    harness = selecting(NORTH, min_silos=2)
    harness.settle()
    assert harness.phase() == "Pending"
    assert harness.condition("Accepted") == (
        "False",
        "QuorumImpossible",
        "spec.participation.minSilos 2 is more than the 1 silo of spec.silos.selector; use 1 or less in a new job, or"
        " label more Silos.",
    )


def test_two_silos_of_one_name_are_refused() -> None:
    harness = selecting(NORTH)
    harness.cluster.put(silo(Ref("clinic", "north"), labels={"study": "lung"}))
    harness.settle()
    assert harness.condition("Accepted") == (
        "False",
        "SiloAmbiguous",
        "Silos clinic/north and silo-north/north have one name, and names are unique in a job; rename one, or take the"
        " label from it.",
    )


def test_two_silos_of_one_key_are_one_silo() -> None:
    """Their updates would be one institution's word, counted twice."""
    lab = Ref("silo-north", "lab")
    other = silo(lab, key=False)
    refs = [{"namespace": ref.namespace, "name": ref.name} for ref in (NORTH, lab)]
    silos = [silo(NORTH), other | {"status": published_offer(other, NORTH)}]
    harness = JobHarness(manifest(silos={"refs": refs}), silos)
    harness.settle()
    assert harness.condition("Accepted") == (
        "False",
        "SiloAmbiguous",
        f"Silos silo-north/north and silo-north/lab have published one key, {public_key(NORTH)}, so that they are one "
        "silo. Those of one namespace share one: move one into a namespace of its own, or take it out of the job.",
    )


def test_under_a_selector_enough_silos_start_without_those_that_refuse() -> None:
    harness = selecting(NORTH, SOUTH, EAST, min_silos=2)
    harness.settle()
    harness.admit(NORTH, SOUTH)
    harness.settle()
    assert harness.phase() == "Admitting", "east has not decided"
    harness.refuse(EAST, "ApprovalPending", "Silo east: a person has to approve.")
    harness.settle()
    assert harness.phase() == "Admitting", "a person of east has not decided"
    harness.refuse(EAST)
    harness.settle()
    assert harness.phase() == "Starting"
    assert harness.condition("Admitted") == (
        "True",
        "Admitted",
        "2 silos admitted the job; it starts without silo-east/east.",
    )
    assert harness.agents() == ["north", "south"]
    entries = {entry["name"]: entry for entry in harness.job["status"]["silos"]}
    assert entries["east"]["phase"] == "LeftOut"
    assert (
        entries["east"]["message"] == "Silo east: policy.methods allows ccvr, not fedavg; use one of these."
    )


def test_under_a_selector_without_a_quorum_all_must_admit() -> None:
    harness = selecting(NORTH, SOUTH)
    harness.settle()
    harness.admit(NORTH)
    harness.refuse(SOUTH)
    harness.settle()
    assert harness.phase() == "Admitting"


def test_a_suspended_job_is_admitted_and_does_not_start() -> None:
    harness = JobHarness(manifest(suspend=True))
    harness.settle()
    harness.admit(NORTH, SOUTH)
    harness.settle()
    assert harness.phase() == "Suspended"
    assert harness.condition("Admitted") == ("True", "Admitted", "2 silos admitted the job.")
    assert "startTime" not in harness.job["status"]
    harness.change(suspend=False)
    harness.settle()
    assert harness.phase() == "Starting"
    assert harness.events()[-1] == ("Normal", "Resumed")


def test_a_failing_agent_is_reported_in_the_job_with_the_silo_s_name() -> None:
    harness = JobHarness().start_job()
    text = "No node can take the trainer, which asks for 1 nvidia.com/gpu: 0/3 nodes are available."
    harness.say(
        SOUTH, "Starting", Admitted=("True", "Admitted", "admitted"), Ready=("False", "Unschedulable", text)
    )
    harness.settle()
    until = harness.job["status"]["gang"]["deadline"]
    assert harness.condition("SilosReady") == (
        "False",
        "Unschedulable",
        f"Silo silo-north/north: its agent has not started yet.\nSilo silo-south/south: {text}\n"
        f"If not all agents run by {until}, the job frees what it holds.",
    )
    assert harness.events()[-1] == ("Warning", "Unschedulable")


def test_names_leave_room_for_what_pods_add() -> None:
    name = agent_name(Ref("federation", "j" * 40), "uid", Ref("n", "s" * 40))
    assert len(f"{name}-trainer-xxxxx") <= 63
    assert len(f"{aggregator_name(Ref('n', 'j' * 40))}-xxxxx") <= 63
