"""What institutions ask the hub, over TLS, with a cluster in memory behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.silo import Silo
from fedsilo.errors import Problem
from fedsilo.silo.leaving import sign_leaving
from fedsilo.silo.offer import sign_offer
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey, open_agents
from fedsilo_operator.cluster.interface import ClusterUnavailable
from fedsilo_operator.objects import SILO_AGENT, SILO_KIND, Ref
from tests.integration.gateway.running_hub import NORTH, SOUTH, TOKEN, RunningHub, agents_path


@pytest.fixture
async def running_hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path).running() as running:
        yield running


async def test_an_invitation_is_written_used_once_and_accepted(running_hub: RunningHub) -> None:
    running_hub.invite()
    assert await running_hub.settled_status(running_hub.enrol, "invitation-invalid") == 201
    enrolment = running_hub.status()["enrolment"]
    fingerprint = running_hub.keys[NORTH].verify_key.fingerprint
    assert enrolment["publicKey"] == running_hub.keys[NORTH].verify_key.to_text()
    assert (enrolment["fingerprint"], enrolment["version"]) == (fingerprint, "0.1.0")
    assert running_hub.status()["hub"] == {
        "url": "https://hub.example",
        "key": running_hub.identity.key.verify_key.to_text(),
    }
    # The answer was lost, and the institution asks again; then another machine tries the same invitation.
    assert (await running_hub.enrol())[0] == 201
    status, code, document = await running_hub.enrol(key=SigningKey.generate())
    assert (status, code) == (409, "invitation-used")
    assert fingerprint in document["detail"]
    assert running_hub.status()["enrolment"] == enrolment

    while (answer := await running_hub.ask("GET", agents_path()))[1] == "unknown-sender":
        continue
    assert answer[:2] == (403, "not-accepted")
    assert fingerprint in answer[2]["detail"]
    running_hub.accept()
    assert (
        await running_hub.settled_status(lambda: running_hub.ask("GET", agents_path("x")), "not-accepted")
        == 200
    )


async def test_an_invitation_that_is_wrong_late_or_of_another_hub_gets_a_clear_word(
    running_hub: RunningHub,
) -> None:
    running_hub.invite()
    running_hub.invite(SOUTH, days=-1)
    assert await running_hub.settled_status(lambda: running_hub.enrol(SOUTH), "invitation-invalid") == 410
    assert (await running_hub.enrol(SOUTH))[1] == "invitation-expired"
    assert (await running_hub.enrol(token=TOKEN[:-1] + "W"))[1] == "invitation-invalid"
    assert (await running_hub.enrol(Ref("silo-west", "west"), key=SigningKey.generate()))[
        1
    ] == "invitation-invalid"
    status, code, document = await running_hub.enrol(job="0123456789abcdef")
    assert (status, code) == (404, "wrong-job")
    assert f"this is hub {running_hub.identity.id}" in document["detail"]
    # Whoever has the token, but not the key that it registers.
    stolen = running_hub.keys[NORTH].verify_key.to_text()
    body = {"silo": str(NORTH), "token": TOKEN, "publicKey": stolen, "version": "0.1.0"}
    answer = await running_hub.ask("POST", "/v1/enrolments", body, key=SigningKey.generate())
    assert answer[1] == "signature-invalid"
    assert (await running_hub.enrol(now=time.time() - 1200))[1] == "proof-expired"
    assert "enrolment" not in running_hub.status()


async def test_whoever_guesses_invitations_uses_up_no_request_of_the_silo(running_hub: RunningHub) -> None:
    await running_hub.join()
    running_hub.gateway.admission.limits = replace(
        running_hub.gateway.admission.limits, requests_per_second=0.001, burst=3
    )
    running_hub.gateway.admission._allowances.clear()
    for guess in range(5):
        answer = await running_hub.enrol(token=f"guess {guess}", key=SigningKey.generate())
        assert answer[1] == "invitation-invalid"
    assert (await running_hub.ask("GET", agents_path("x")))[0] == 200


async def test_a_new_invitation_gives_a_silo_another_key(running_hub: RunningHub) -> None:
    await running_hub.join()
    running_hub.invite(token="the next token", publicKey=running_hub.keys[NORTH].verify_key.to_text())
    key = SigningKey.generate()
    answer = await running_hub.settled_status(
        lambda: running_hub.enrol(token="the next token", key=key), "invitation-invalid"
    )
    assert answer == 201
    assert (
        await running_hub.settled_status(
            lambda: running_hub.ask("GET", agents_path("x"), key=key), "signature-invalid"
        )
        == 403
    )
    assert (await running_hub.ask("GET", agents_path("x"), key=key))[1] == "not-accepted"


async def test_a_silo_hears_of_its_own_agents_signed_by_the_hub(running_hub: RunningHub) -> None:
    await running_hub.join()
    await running_hub.join(SOUTH)
    running_hub.propose(SOUTH, "digits-south-1")
    poll = asyncio.ensure_future(running_hub.ask("GET", agents_path(await revision_of(running_hub), wait=60)))
    await asyncio.sleep(0)
    made = running_hub.propose()
    status, _, sealed = await poll
    assert status == 200
    document = open_agents(sealed, running_hub.identity.key.verify_key, str(NORTH))
    told = {name: value for name, value in made["spec"].items() if name != "route"}
    assert document["agents"] == [{"name": "digits-north-1", "uid": uid_of(made), "spec": told}]
    assert document["version"] == int(made["metadata"]["resourceVersion"])
    assert (await running_hub.ask("GET", agents_path(document["revision"])))[0] == 204
    with pytest.raises(Problem, match="signature"):
        open_agents(sealed, SigningKey.generate().verify_key, str(NORTH))
    with pytest.raises(Problem, match="wrong-sender"):
        open_agents(sealed, running_hub.identity.key.verify_key, str(SOUTH))
    assert running_hub.status()["lastSeen"]


async def revision_of(running_hub: RunningHub) -> str:
    status, _, sealed = await running_hub.ask("GET", agents_path("x"))
    assert status == 200
    return str(open_agents(sealed, running_hub.identity.key.verify_key, str(NORTH))["revision"])


async def test_a_report_changes_the_status_of_ones_own_agent_only(running_hub: RunningHub) -> None:
    await running_hub.join()
    await running_hub.join(SOUTH)
    mine, other = running_hub.propose(), running_hub.propose(SOUTH, "digits-south-1")
    path = f"/v1/silos/{NORTH.namespace}/{NORTH.name}/agents/digits-north-1/status"
    ready = {"type": "Ready", "status": "True", "reason": "Running", "message": ""}
    ready["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    connected = ready | {"type": "Connected"}
    report = {
        "uid": uid_of(mine),
        "status": {"phase": "Running", "conditions": [ready, connected], "later": 1},
    }
    assert (
        await running_hub.settled_status(lambda: running_hub.ask("PUT", path, report), "unknown-agent") == 204
    )
    found = running_hub.status(SILO_AGENT, Ref(NORTH.namespace, "digits-north-1"))
    assert (found["phase"], found["conditions"]) == ("Running", [ready])
    assert "later" not in found

    assert (await running_hub.ask("PUT", path, report | {"uid": uid_of(other)}))[1] == "unknown-agent"
    foreign = path.replace("digits-north-1", "digits-south-1")
    assert (await running_hub.ask("PUT", foreign, report))[1] == "unknown-agent"
    theirs = foreign.replace("silo-north/north", "silo-south/south")
    assert (await running_hub.ask("PUT", theirs, report | {"uid": uid_of(other)}))[1] == "unknown-sender"
    assert (await running_hub.ask("PUT", path, report | {"spec": {}}))[1] == "malformed"
    assert (await running_hub.ask("PUT", path, report | {"status": {"phase": 7}}))[1] == "malformed"
    assert (
        running_hub.cluster.peek(SILO_AGENT, Ref(NORTH.namespace, "digits-north-1"))["spec"] == mine["spec"]
    )
    assert not running_hub.status(SILO_AGENT, Ref(SOUTH.namespace, "digits-south-1"))


def offer_of(ref: Ref, key: SigningKey) -> Object:
    """What the institution's own Silo offers, with its signature."""
    metadata = {"name": ref.name, "namespace": ref.namespace}
    spec = {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]}
    return sign_offer(Silo.model_validate({"metadata": metadata, "spec": spec}), datetime.now(UTC), key)


async def test_an_offer_is_published_as_it_was_signed(running_hub: RunningHub) -> None:
    await running_hub.join()
    statement = offer_of(NORTH, running_hub.keys[NORTH])
    path = f"/v1/silos/{NORTH.namespace}/{NORTH.name}/offer"
    assert (await running_hub.ask("PUT", path, statement))[0] == 204
    assert running_hub.status()["offer"] == statement
    assert (await running_hub.ask("PUT", path, offer_of(NORTH, SigningKey.generate())))[
        1
    ] == "signature-invalid"
    assert (await running_hub.ask("PUT", path, offer_of(SOUTH, running_hub.keys[NORTH])))[1] == "wrong-sender"
    assert (await running_hub.ask("PUT", path, {"datasets": []}))[1] == "malformed"
    assert running_hub.status()["offer"] == statement
    assert {"enrolment", "hub", "lastSeen"} <= running_hub.status().keys(), (
        "no writer took back what another wrote"
    )


async def test_a_revoked_silo_is_refused_with_its_next_request_and_in_the_middle_of_a_poll(
    running_hub: RunningHub,
) -> None:
    await running_hub.join()
    made = running_hub.propose()
    job = made["spec"]["job"]["uid"]
    while running_hub.gateway.hub.route(job, str(NORTH)) is None:
        await asyncio.sleep(0)
    poll = asyncio.ensure_future(running_hub.ask("GET", agents_path(await revision_of(running_hub), wait=60)))
    while not running_hub.gateway.admission.open:
        await asyncio.sleep(0)
    running_hub.accept(revoked=True)
    assert (await poll)[:2] == (403, "unknown-sender")
    assert (await running_hub.ask("GET", agents_path()))[1] == "unknown-sender"
    route = running_hub.gateway.hub.route(job, str(NORTH))
    assert route is not None
    assert route.closed is not None
    assert route.closed.code == "unknown-sender"
    assert (await running_hub.enrol())[1] == "invitation-invalid"


async def test_an_invitation_after_a_revocation_readmits_nobody_who_has_not_used_it(
    running_hub: RunningHub,
) -> None:
    await running_hub.join()
    job = running_hub.propose()["spec"]["job"]["uid"]
    running_hub.accept(revoked=True)
    running_hub.invite(token="the next token", revoked=False, publicKey=None)
    while (answer := await running_hub.ask("GET", agents_path()))[2]["detail"].find("was revoked") >= 0:
        continue
    assert answer[:2] == (403, "unknown-sender")
    assert "newest invitation" in answer[2]["detail"]
    # Nor in a job that runs, nor may it speak of keys and leaving.
    while (route := running_hub.gateway.hub.route(job, str(NORTH))) is None:
        await asyncio.sleep(0)
    assert route.closed is not None
    assert route.closed.code == "not-accepted"
    old, new = running_hub.keys[NORTH], SigningKey.generate()
    rotation = sign_rotation(str(NORTH), old, new, datetime.now(UTC))
    assert (await running_hub.ask("POST", own_path("key"), rotation))[1] == "unknown-sender"
    leaving = sign_leaving(str(NORTH), running_hub.identity.id, datetime.now(UTC), old)
    assert (await running_hub.ask("PUT", own_path("leaving"), leaving))[1] == "unknown-sender"
    assert (await running_hub.enrol())[1] == "invitation-invalid"
    # With the new invitation the same key may be registered again, and waits for a person.
    assert (
        await running_hub.settled_status(
            lambda: running_hub.enrol(token="the next token"), "invitation-invalid"
        )
        == 201
    )
    assert (
        await running_hub.settled_status(lambda: running_hub.ask("GET", agents_path()), "unknown-sender")
        == 403
    )
    assert (await running_hub.ask("GET", agents_path()))[1] == "not-accepted"
    running_hub.accept()
    assert (
        await running_hub.settled_status(lambda: running_hub.ask("GET", agents_path("x")), "not-accepted")
        == 200
    )
    route = running_hub.gateway.hub.route(job, str(NORTH))
    assert route is not None
    assert route.closed is None


async def test_an_api_server_that_is_away_is_no_final_refusal(running_hub: RunningHub) -> None:
    await running_hub.join()
    made = running_hub.propose()
    path = f"/v1/silos/{NORTH.namespace}/{NORTH.name}/agents/digits-north-1/status"
    report = {"uid": uid_of(made), "status": {"phase": "Running"}}
    assert (
        await running_hub.settled_status(lambda: running_hub.ask("PUT", path, report), "unknown-agent") == 204
    )
    running_hub.broken = ClusterUnavailable("no connection")
    assert (await running_hub.ask("PUT", path, report | {"status": {"phase": "Failed"}}))[:2] == (
        503,
        "unreachable",
    )
    running_hub.broken = None
    assert (await running_hub.ask("PUT", path, report | {"status": {"phase": "Failed"}}))[0] == 204


async def test_a_route_is_of_a_silos_own_agent_in_its_own_namespace(running_hub: RunningHub) -> None:
    await running_hub.join()
    made = running_hub.propose()
    job = made["spec"]["job"]["uid"]
    while (route := running_hub.gateway.hub.route(job, str(NORTH))) is None:
        await asyncio.sleep(0)
    trust, way = made["spec"]["trust"], made["spec"]["route"]
    assert (route.url, route.ca, route.key.to_text()) == (
        way["url"],
        way["caCertificate"],
        trust["publicKey"],
    )
    assert running_hub.gateway.hub.route(job, str(SOUTH)) is None
    assert running_hub.gateway.hub.route("another", str(NORTH)) is None


def own_path(rest: str, ref: Ref = NORTH) -> str:
    return f"/v1/silos/{ref.namespace}/{ref.name}/{rest}"


async def test_a_new_key_is_announced_by_both_keys_and_is_the_silos_from_then_on(
    running_hub: RunningHub,
) -> None:
    await running_hub.join()
    old, new = running_hub.keys[NORTH], SigningKey.generate()
    rotation = sign_rotation(str(NORTH), old, new, datetime.now(UTC))
    assert (await running_hub.ask("POST", own_path("key"), rotation))[0] == 204
    assert running_hub.status()["rotations"] == [rotation]
    assert (await running_hub.ask("GET", agents_path("x"), key=new))[0] == 200
    assert (await running_hub.ask("GET", agents_path("x"), key=old))[1] == "signature-invalid"
    assert (await running_hub.ask("PUT", own_path("offer"), offer_of(NORTH, new), key=new))[0] == 204
    # The answer was lost, and the silo asks once more as it did.
    writes = len(running_hub.cluster.writes)
    assert (await running_hub.ask("POST", own_path("key"), rotation))[0] == 204
    assert len(running_hub.cluster.writes) == writes
    assert {"enrolment", "hub", "lastSeen", "offer"} <= running_hub.status().keys()

    # Another machine with the old key announces one of its own.
    other = SigningKey.generate()
    answer = await running_hub.ask(
        "POST", own_path("key"), sign_rotation(str(NORTH), old, other, datetime.now(UTC))
    )
    assert answer[:2] == (409, "key-superseded")
    assert new.verify_key.fingerprint in answer[2]["detail"]
    back = sign_rotation(str(NORTH), new, old, datetime.now(UTC))
    assert (await running_hub.ask("POST", own_path("key"), back, key=new))[1] == "malformed"
    third = sign_rotation(str(NORTH), new, other, datetime.now(UTC))
    assert (await running_hub.ask("POST", own_path("key"), third, key=other))[1] == "signature-invalid"
    assert (await running_hub.ask("POST", own_path("key"), third, key=new))[0] == 204
    assert running_hub.status()["rotations"] == [rotation, third]
    # What was registered is what the next invitation replaces, with all that followed upon it.
    running_hub.keys[NORTH] = SigningKey.generate()
    running_hub.invite(token="the next token", publicKey=old.verify_key.to_text())
    assert (
        await running_hub.settled_status(
            lambda: running_hub.enrol(token="the next token"), "invitation-invalid"
        )
        == 201
    )
    assert "rotations" not in running_hub.status()
    assert (await running_hub.ask("GET", agents_path("x")))[1] == "not-accepted"


async def test_a_record_of_keys_that_somebody_has_changed_lets_no_key_ask(running_hub: RunningHub) -> None:
    await running_hub.join()
    forged = sign_rotation(str(SOUTH), running_hub.keys[NORTH], SigningKey.generate(), datetime.now(UTC))
    silo = running_hub.cluster.peek(SILO_KIND, NORTH)
    silo["status"]["rotations"] = [forged]
    running_hub.cluster.put(silo)
    while (answer := await running_hub.ask("GET", agents_path("x")))[0] == 200:
        continue
    assert answer[:2] == (403, "not-accepted")
    assert "record of the keys" in answer[2]["detail"]


async def test_a_silo_that_has_left_is_told_so_until_it_is_invited_again(running_hub: RunningHub) -> None:
    await running_hub.join()
    made = running_hub.propose()
    job = made["spec"]["job"]["uid"]
    path, key = own_path("leaving"), running_hub.keys[NORTH]
    poll = asyncio.ensure_future(running_hub.ask("GET", agents_path(await revision_of(running_hub), wait=60)))
    wrong = sign_leaving(str(NORTH), "0123456789abcdef", datetime.now(UTC), key)
    assert (await running_hub.ask("PUT", path, wrong))[1] == "wrong-job"
    said = sign_leaving(str(NORTH), running_hub.identity.id, datetime.now(UTC), key)
    assert (await running_hub.ask("PUT", path, said, key=SigningKey.generate()))[1] == "signature-invalid"
    assert (await running_hub.ask("PUT", path, said))[0] == 204
    assert running_hub.status()["leaving"] == said
    assert (await poll)[:2] == (410, "silo-left")
    assert (await running_hub.ask("GET", agents_path()))[:2] == (410, "silo-left")
    route = running_hub.gateway.hub.route(job, str(NORTH))
    assert route is not None
    assert route.closed is not None
    assert route.closed.code == "silo-left"
    later = sign_leaving(str(NORTH), running_hub.identity.id, datetime.now(UTC) + timedelta(hours=1), key)
    assert (await running_hub.ask("PUT", path, later))[0] == 204
    assert running_hub.status()["leaving"] == said
    assert (await running_hub.enrol())[:2] == (410, "silo-left")

    running_hub.invite(token="the next token", publicKey=key.verify_key.to_text())
    answer = await running_hub.settled_status(
        lambda: running_hub.enrol(token="the next token"), "invitation-invalid"
    )
    assert answer == 201
    assert "leaving" not in running_hub.status()
    assert (await running_hub.ask("GET", agents_path("x")))[0] == 200
