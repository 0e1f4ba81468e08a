"""A job with an institution outside of the cluster: asked and counted like any other, by way of the hub's gateway."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.api.silo import Silo
from fedsilo.silo.offer import sign_offer
from fedsilo.silo.rotation import sign_rotation
from fedsilo_operator.objects import CONFIG_MAP, SILO_AGENT, SILO_KIND, ref_of
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import (
    EAST,
    KEYS,
    NORTH,
    SECURE_SECTIONS,
    SOUTH,
    START,
    WEST,
    manifest,
    public_key,
    published_offer,
    silo,
)

CA = "-----BEGIN CERTIFICATE-----\nR2F0ZXdheQ==\n-----END CERTIFICATE-----\n"
GATEWAY = {"url": "https://hub.example", "caCertificate": CA}
HUB_KEY = public_key(EAST)


def remote_silo(**hub: Any) -> Object:
    """South, whose institution is elsewhere, has been accepted."""
    content = silo(SOUTH)
    told: dict[str, Any] = {**GATEWAY, "key": HUB_KEY} | hub
    content["status"] |= {
        "hub": {name: value for name, value in told.items() if value is not None},
        "enrolment": {"publicKey": public_key(SOUTH), "fingerprint": "1a2b"},
    }
    content["spec"] = {"remote": {"publicKey": public_key(SOUTH)}}
    return content


def harness(south: Object | None = None, job: Object | None = None) -> JobHarness:
    return JobHarness(job, [silo(NORTH), south or remote_silo()])


def put_silo(world: JobHarness, **status: Any) -> None:
    """The hub's silo controller or the gateway writes about south."""
    content = world.cluster.peek(SILO_KIND, SOUTH)
    world.cluster.put(content | {"status": content["status"] | status}, "somebody")


def unready_condition(reason: str, message: str) -> Object:
    return {"type": "Ready", "status": "False", "reason": reason, "message": message}


def not_seen(status: str = "False") -> Object:
    return {
        "type": "Connected",
        "status": status,
        "reason": "NotSeen" if status == "False" else "Seen",
        "message": "Nothing was heard of the institution since 2026-03-01T11:00:00Z: x.",
    }


def test_a_remote_silo_is_told_the_gateway_and_the_gateway_the_aggregator() -> None:
    world = harness()
    world.settle()
    near, far = world.agent(NORTH)["spec"], world.agent(SOUTH)["spec"]
    assert "route" not in near
    assert "10." in near["trust"]["address"]
    assert far["trust"] == {
        **GATEWAY,
        "taskKey": near["trust"]["taskKey"],
        "publicKey": public_key(SOUTH),
    }
    assert far["route"] == {name: near["trust"][name] for name in ("url", "caCertificate")}
    assert far["job"] == near["job"]


def test_a_remote_silo_is_told_the_keys_of_all_silos_of_a_job_with_secure_aggregation() -> None:
    world = harness(job=manifest((SOUTH, NORTH, WEST), **SECURE_SECTIONS))
    world.cluster.put(silo(WEST))
    world.settle()
    expected = [{"silo": str(ref), "publicKey": public_key(ref)} for ref in (SOUTH, NORTH, WEST)]
    assert [world.agent(ref)["spec"]["trust"]["members"] for ref in (NORTH, SOUTH)] == [expected, expected]
    world.admit(NORTH)
    put_silo(world, publicKey=public_key(EAST), offer=_offer_with_new_key())
    announce_rotation(world)
    world.settle()
    renewed = [expected[0] | {"publicKey": public_key(EAST)}, *expected[1:]]
    assert [world.agent(ref)["spec"]["trust"]["members"] for ref in (NORTH, SOUTH)] == [renewed, renewed]


def test_a_gateway_with_an_ordinary_certificate_needs_no_authority_of_its_own() -> None:
    world = harness(remote_silo(caCertificate=None))
    world.settle()
    assert "caCertificate" not in world.agent(SOUTH)["spec"]["trust"]
    world.admit(NORTH, SOUTH)
    world.settle()
    assert "authority" not in world.agent(SOUTH)["status"]["proposal"]
    assert world.phase() == "Starting"


def test_what_a_remote_silo_decides_on_is_the_gateway() -> None:
    world = harness()
    world.settle()
    world.admit(NORTH, SOUTH)
    asked = world.agent(SOUTH)["status"]["proposal"]
    assert asked["url"] == GATEWAY["url"]
    assert asked["authority"] == hashlib.sha256(CA.encode()).hexdigest()
    assert "address" not in asked
    world.settle()
    assert world.phase() == "Starting"
    world.run(NORTH, SOUTH)
    world.settle()
    world.pod("Running", running={})
    world.settle()
    assert world.phase() == "Running"
    before = world.cluster.objects(SILO_AGENT)
    world.change(suspend=True)
    world.settle()
    world.change(suspend=False)
    world.settle()
    assert [agent["spec"] for agent in world.cluster.objects(SILO_AGENT)] == [
        agent["spec"] for agent in before
    ]


def test_a_job_waits_for_a_gateway_with_a_clear_message() -> None:
    south = remote_silo()
    del south["status"]["hub"]
    world = harness(south)
    world.settle()
    assert world.agents() == ["north"]
    status, reason, message = world.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "SiloNotReady")
    assert "No gateway has written its address into status.hub of Silo silo-south/south" in message
    put_silo(world, hub={**GATEWAY, "key": HUB_KEY})
    world.settle()
    assert world.agents() == ["north", "south"]


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("trust", "url", "https://evil.example"),
        ("trust", "taskKey", public_key(EAST)),
        ("trust", "caCertificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("route", "url", "https://evil.example"),
    ],
)
def test_an_agent_with_another_way_is_made_again_before_the_start(part: str, field: str, value: str) -> None:
    world = harness()
    world.settle()
    agent = world.agent(SOUTH)
    right = agent["spec"][part][field]
    agent["spec"][part][field] = value
    world.cluster.put(agent | {"status": None}, "somebody")
    world.admit(NORTH, SOUTH)
    world.step()
    status, reason, message = world.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert f"in spec.{part}.{field} " in message
    assert not world.cluster.objects(CONFIG_MAP)
    world.settle()
    assert world.agent(SOUTH)["spec"][part][field] == right


def test_the_gateway_s_way_is_recorded_at_the_start_and_its_own_address_may_change() -> None:
    world = harness().running()
    put_silo(world, hub={**GATEWAY, "url": "https://new.example", "key": HUB_KEY})
    world.settle()
    assert world.agent(SOUTH)["spec"]["suspend"] is False
    assert world.agent(SOUTH)["spec"]["trust"]["url"] == GATEWAY["url"]
    agent = world.agent(SOUTH)
    agent["spec"]["route"]["caCertificate"] = CA
    world.cluster.put(agent | {"status": None}, "somebody")
    world.settle()
    status, reason, message = world.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "TrustBroken")
    assert "spec.route.caCertificate another authority" in message
    assert world.agent(SOUTH)["spec"]["suspend"] is True
    world.cluster.remove(SILO_AGENT, ref_of(agent))
    world.settle()
    assert world.agent(SOUTH)["spec"]["trust"]["url"] == "https://new.example"


def announce_rotation(world: JobHarness) -> None:
    """South announces the key of east as its own, and the hub publishes it."""
    rotation = sign_rotation(str(SOUTH), KEYS[SOUTH], KEYS[EAST], START)
    put_silo(world, rotations=[rotation], publicKey=public_key(EAST))


def test_an_agent_is_made_again_for_a_new_key_before_the_start() -> None:
    world = harness()
    world.settle()
    world.admit(NORTH)
    first = world.agent(SOUTH)["metadata"]["uid"]
    announce_rotation(world)
    world.settle()
    status, reason, message = world.condition("Accepted") or ("", "", "")
    assert (status, reason) == ("False", "KeyPending")
    assert "has not signed its offer with it yet" in message
    assert world.agent(SOUTH)["spec"]["trust"]["publicKey"] == public_key(EAST)
    assert world.agent(SOUTH)["metadata"]["uid"] != first
    put_silo(world, offer=_offer_with_new_key())
    world.settle()
    assert (world.condition("Accepted") or ("",))[0] == "True"


def _offer_with_new_key() -> Object:
    content = Silo.model_validate({name: part for name, part in silo(SOUTH).items() if name != "status"})
    return sign_offer(content, START, KEYS[EAST])


def test_a_job_that_has_started_ends_with_the_key_that_it_began_with() -> None:
    world = harness().running()
    began = world.agent(SOUTH)
    announce_rotation(world)
    put_silo(world, offer=_offer_with_new_key())
    world.settle()
    assert world.agent(SOUTH) == began
    assert world.phase() == "Running"
    assert (world.condition("SilosReady") or ("",))[0] == "True"


def test_an_offer_of_an_earlier_key_that_nobody_announced_is_no_word_of_the_silo() -> None:
    world = harness()
    world.settle()
    put_silo(world, publicKey=public_key(EAST), offer=published_offer(silo(SOUTH))["offer"])
    world.settle()
    assert (world.condition("Accepted") or ("", ""))[1] == "TrustBroken"


@pytest.mark.parametrize("reason", ["Left", "Revoked"])
def test_a_silo_that_takes_part_no_more_is_named_and_counts_as_failed(reason: str) -> None:
    said = "The institution has left at 2026-03-01T12:00:00Z; x."
    job = manifest(participation={"minSilos": 1})
    world = harness(job=job).running()
    status = world.cluster.peek(SILO_KIND, SOUTH)["status"]
    del status["publicKey"]
    world.cluster.put(
        world.cluster.peek(SILO_KIND, SOUTH)
        | {"status": status | {"conditions": [unready_condition(reason, said)]}}
    )
    world.settle()
    assert world.condition("SilosReady") == ("False", "SiloFailed", f"Silo silo-south/south failed: {said}")
    assert {entry["name"]: entry["message"] for entry in world.job["status"]["silos"]}["south"] == said
    assert world.phase() == "Running", "the quorum is one"


def test_a_job_that_needs_a_silo_that_has_left_says_so_and_ends() -> None:
    world = harness().running()
    put_silo(world, conditions=[unready_condition("Left", "The institution has left.")])
    world.settle()
    status, reason, message = world.condition("Failed") or ("", "", "")
    assert (status, reason) == ("True", "QuorumLost")
    assert "Silo silo-south/south failed: The institution has left." in message


def test_a_silo_that_left_after_its_part_was_over_is_no_failure() -> None:
    world = harness().running()
    world.say(
        SOUTH,
        "Finished",
        Admitted=("True", "Admitted", ""),
        Finished=("True", "Finished", "The job is over for this silo."),
    )
    put_silo(world, conditions=[unready_condition("Left", "The institution has left."), not_seen()])
    world.settle()
    assert world.phase() == "Running"
    assert (world.condition("SilosReady") or ("",))[0] == "True"


def test_a_job_names_the_silo_that_is_not_heard_of_and_waits() -> None:
    world = harness()
    world.settle()
    world.admit(NORTH)
    put_silo(world, conditions=[not_seen()])
    world.settle()
    status, reason, message = world.condition("Admitted") or ("", "", "")
    assert (status, reason) == ("False", "NotSeen")
    assert message.startswith("Waiting for the decision of silo-south/south.")
    assert "Silo silo-south/south: Nothing was heard of the institution since 2026-03-01T11:00:00Z" in message
    put_silo(world, conditions=[not_seen("True")])
    world.admit(SOUTH)
    world.settle()
    assert world.phase() == "Starting"


def test_a_job_that_runs_names_the_silo_that_is_not_heard_of_and_goes_on() -> None:
    world = harness().running()
    put_silo(world, conditions=[not_seen()])
    world.settle()
    status, reason, message = world.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "NotSeen")
    assert message.startswith("Silo silo-south/south: Nothing was heard of the institution since ")
    entries = {entry["name"]: entry["message"] for entry in world.job["status"]["silos"]}
    assert entries["south"].startswith("Nothing was heard of the institution since ")
    assert world.phase() == "Running"
    put_silo(world, conditions=[not_seen("True")])
    world.settle()
    assert (world.condition("SilosReady") or ("",))[0] == "True"
