"""Agents of a job with secure aggregation: each states the keys of all silos, and all the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fedsilo.api.agent import SiloAgentSpec
from fedsilo.api.observed import Object, uid_of
from fedsilo.api.proposal import members_digest
from fedsilo.api.silo import Silo
from fedsilo.silo.offer import sign_offer
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import CONFIG_MAP, SILO_AGENT, SILO_KIND, Ref, ref_of
from fedsilo_operator.workloads.aggregator import public_keys_in
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import (
    EAST,
    JOB_REF,
    KEYS,
    NORTH,
    SECURE_SECTIONS,
    SOUTH,
    START,
    manifest,
    public_key,
    silo,
)

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
SILOS = (SOUTH, NORTH, EAST)
NEXT_KEY = SigningKey.from_seed(b"n" * 32)
NEXT_PUBLIC_KEY = NEXT_KEY.verify_key.to_text()


def secure_harness(silos: tuple[Object, ...] | None = None) -> JobHarness:
    """A job whose silos know each other's keys."""
    made = JobHarness(manifest(SILOS, **SECURE_SECTIONS), silos or tuple(silo(ref) for ref in SILOS))
    made.settle()
    return made


def members(*replaced: tuple[Ref, str]) -> list[dict[str, str]]:
    """All silos in the job's order, with their first keys but for these."""
    keys = {ref: public_key(ref) for ref in SILOS} | dict(replaced)
    return [{"silo": str(ref), "publicKey": keys[ref]} for ref in SILOS]


def stated_members(harness: JobHarness) -> list[Any]:
    """What each agent states."""
    return [harness.agent(ref)["spec"]["trust"].get("members") for ref in SILOS]


def uids(harness: JobHarness) -> set[str]:
    return {uid_of(agent) for agent in harness.cluster.objects(SILO_AGENT)}


def renew(harness: JobHarness, ref: Ref, *, announced: bool = True) -> None:
    """A silo publishes another key."""
    content = harness.cluster.peek(SILO_KIND, ref)
    rotations = [sign_rotation(str(ref), KEYS[ref], NEXT_KEY, START)] if announced else []
    offer = sign_offer(Silo.model_validate(silo(ref, key=False)), START, NEXT_KEY)
    status = {"publicKey": NEXT_PUBLIC_KEY, "offer": offer, "rotations": rotations}
    harness.cluster.put(content | {"status": content["status"] | status}, "fedsilo-operator")


def forge(harness: JobHarness, found: Any) -> Object:
    """Somebody writes into north's agent that these are the silos of the job."""
    agent = harness.agent(NORTH)
    agent["spec"]["trust"]["members"] = found
    return harness.cluster.put(agent | {"status": None}, "somebody")


def test_every_agent_states_all_silos_in_the_order_of_the_references() -> None:
    harness = secure_harness()
    assert stated_members(harness) == [members()] * 3
    harness.admit(*SILOS)
    proposals = [harness.agent(ref)["status"]["proposal"]["members"] for ref in SILOS]
    assert set(proposals) == {
        members_digest(SiloAgentSpec.model_validate(harness.agent(NORTH)["spec"]).trust.members)
    }
    harness.settle()
    assert harness.phase() == "Starting"
    assert stated_members(harness) == [members()] * 3
    assert list(public_keys_in(harness.cluster.peek(CONFIG_MAP, AGGREGATOR))) == list(SILOS)


def test_without_secure_aggregation_an_agent_states_no_silos() -> None:
    plain = JobHarness(manifest(SILOS), [silo(ref) for ref in SILOS])
    plain.settle()
    assert stated_members(plain) == [None] * 3
    told = secure_harness().agent(NORTH)["spec"]["trust"]
    assert plain.agent(NORTH)["spec"]["trust"].keys() == told.keys() - {"members"}
    plain.admit(*SILOS)
    assert "members" not in plain.agent(NORTH)["status"]["proposal"]


def test_no_agent_is_made_before_all_keys_are_known() -> None:
    harness = secure_harness((silo(SOUTH), silo(NORTH, key=False)))
    assert harness.agents() == []
    assert (harness.condition("Accepted") or ("", ""))[1] == "SiloNotFound"
    harness.cluster.put(silo(EAST))
    harness.settle()
    assert harness.agents() == []
    assert (harness.condition("Accepted") or ("", ""))[1] == "KeyPending"
    harness.cluster.put(silo(NORTH))
    harness.settle()
    assert stated_members(harness) == [members()] * 3


def test_a_silo_that_is_gone_for_a_while_before_the_start_changes_no_other_agent() -> None:
    harness = secure_harness()
    harness.admit(SOUTH, NORTH)
    before, east = [harness.agent(ref) for ref in (SOUTH, NORTH)], harness.cluster.peek(SILO_KIND, EAST)
    harness.cluster.remove(SILO_KIND, EAST)
    harness.settle()
    assert (harness.condition("Accepted") or ("", ""))[1] == "SiloNotFound"
    assert (harness.condition("Admitted") or ("", ""))[1] != "TrustBroken"
    assert [harness.agent(ref) for ref in (SOUTH, NORTH)] == before
    harness.cluster.put(east)
    harness.settle()
    assert [harness.agent(ref) for ref in (SOUTH, NORTH)] == before
    assert stated_members(harness) == [members()] * 3
    harness.admit(EAST)
    harness.settle()
    assert harness.phase() == "Starting"


def test_a_key_that_is_renewed_before_the_start_makes_all_agents_again() -> None:
    harness = secure_harness()
    harness.admit(*SILOS)
    before = uids(harness)
    south = ref_of(harness.agent(SOUTH))
    renew(harness, NORTH)
    harness.step()
    status, reason, message = harness.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "Admitting")
    assert f"SiloAgent {south} is made again for the new key of silo-north/north." in message
    assert not harness.cluster.objects(CONFIG_MAP), "nothing starts with what was decided about other keys"
    harness.settle()
    assert stated_members(harness) == [members((NORTH, NEXT_PUBLIC_KEY))] * 3
    assert harness.agent(NORTH)["spec"]["trust"]["publicKey"] == NEXT_PUBLIC_KEY
    assert not uids(harness) & before
    assert harness.phase() == "Admitting"


@pytest.mark.parametrize("record_lost", [False, True])
def test_a_job_that_has_started_keeps_the_keys_that_it_began_with(record_lost: bool) -> None:
    harness = secure_harness().running()
    before = [harness.agent(ref) for ref in SILOS]
    config = harness.cluster.peek(CONFIG_MAP, AGGREGATOR)["data"]
    renew(harness, NORTH)
    harness.cluster.remove(SILO_AGENT, ref_of(harness.agent(NORTH)))
    if record_lost:
        harness.cluster.remove(CONFIG_MAP, AGGREGATOR)
    harness.settle()
    assert stated_members(harness) == [members()] * 3
    assert harness.agent(NORTH)["spec"] == before[1]["spec"]
    assert [harness.agent(ref) for ref in (SOUTH, EAST)] == [before[0], before[2]]
    assert harness.cluster.peek(CONFIG_MAP, AGGREGATOR)["data"] == config
    assert harness.phase() == "Running"


FORGERIES: list[tuple[Any, str]] = [
    (members((EAST, NEXT_PUBLIC_KEY)), f"{EAST} with {NEXT_PUBLIC_KEY}, not {EAST} with {public_key(EAST)}"),
    (members()[::-1], f"{EAST} with {public_key(EAST)}, not {SOUTH} with {public_key(SOUTH)}"),
    (members()[:2], f"no further silo, not {EAST} with {public_key(EAST)}"),
    (
        [*members(), {"silo": "silo-west/west", "publicKey": NEXT_PUBLIC_KEY}],
        f"silo-west/west with {NEXT_PUBLIC_KEY}, not no further silo",
    ),
    (None, f"no further silo, not {SOUTH} with {public_key(SOUTH)}"),
]


@pytest.mark.parametrize(("found", "said"), FORGERIES)
def test_an_agent_with_other_silos_is_made_again_before_the_start(found: Any, said: str) -> None:
    harness = secure_harness()
    forge(harness, found)
    harness.admit(*SILOS)
    harness.step()
    status, reason, message = harness.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert f"has in spec.trust.members {said}, which is what the operator tells the silos" in message
    assert not harness.cluster.objects(CONFIG_MAP), "nothing starts on such news"
    harness.settle()
    assert stated_members(harness) == [members()] * 3


@pytest.mark.parametrize(("found", "said"), FORGERIES)
def test_an_agent_with_other_silos_is_stopped_and_named_after_the_start(found: Any, said: str) -> None:
    harness = secure_harness().running()
    forged = forge(harness, found)
    renew(harness, EAST)
    harness.settle()
    status, reason, message = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert message.startswith(f"Silo {NORTH}: SiloAgent {ref_of(forged)} has in spec.trust.members {said}")
    assert [harness.agent(ref)["spec"]["suspend"] for ref in SILOS] == [False, True, False]
    harness.cluster.remove(SILO_AGENT, ref_of(forged))
    harness.settle()
    assert stated_members(harness) == [members()] * 3
    assert harness.agent(NORTH)["spec"]["suspend"] is False


def test_a_key_that_nobody_announced_is_told_to_all_as_what_somebody_changed() -> None:
    harness = secure_harness()
    renew(harness, EAST, announced=False)
    harness.step()
    assert (harness.condition("Admitted") or ("", ""))[1] == "TrustBroken"
    harness.settle()
    assert stated_members(harness) == [members((EAST, NEXT_PUBLIC_KEY))] * 3


@pytest.mark.parametrize("found", [[], members()])
def test_an_agent_that_states_silos_where_none_should_is_no_agent_of_the_operator(found: Any) -> None:
    harness = JobHarness(manifest(SILOS), [silo(ref) for ref in SILOS])
    harness.settle()
    forge(harness, found)
    harness.step()
    assert (harness.condition("Admitted") or ("", ""))[1] == "TrustBroken"
    harness.settle()
    assert stated_members(harness) == [None] * 3


def test_a_decision_about_other_silos_does_not_count() -> None:
    harness = secure_harness()
    harness.admit(SOUTH, EAST)
    agent = harness.agent(NORTH)
    asked = copy.deepcopy(agent)
    asked["spec"]["trust"]["members"] = members((EAST, NEXT_PUBLIC_KEY))
    harness.cluster.put(asked | {"status": None}, "somebody")
    harness.admit(NORTH)
    told = harness.agent(NORTH)["status"]
    harness.cluster.put(agent | {"status": told}, "somebody")
    harness.settle()
    assert stated_members(harness) == [members()] * 3
    status, reason, message = harness.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert "is about another members than the operator wrote into the agent" in message
    assert not harness.cluster.objects(CONFIG_MAP)
