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
from fedsilo_operator.cluster.interface import Unavailable
from fedsilo_operator.objects import SILO_AGENT, SILO_KIND, Ref
from tests.integration.gateway.house import NORTH, SOUTH, TOKEN, House, agents_path


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path).running() as running:
        yield running


async def test_an_invitation_is_written_used_once_and_accepted(house: House) -> None:
    house.invite()
    assert await house.settled(house.enrol, "invitation-invalid") == 201
    enrolment = house.status()["enrolment"]
    fingerprint = house.keys[NORTH].verify_key.fingerprint
    assert enrolment["publicKey"] == house.keys[NORTH].verify_key.to_text()
    assert (enrolment["fingerprint"], enrolment["version"]) == (fingerprint, "0.1.0")
    assert house.status()["hub"] == {
        "url": "https://hub.example",
        "key": house.identity.key.verify_key.to_text(),
    }
    # The answer was lost, and the institution asks again; then another machine tries the same invitation.
    assert (await house.enrol())[0] == 201
    status, code, document = await house.enrol(key=SigningKey.generate())
    assert (status, code) == (409, "invitation-used")
    assert fingerprint in document["detail"]
    assert house.status()["enrolment"] == enrolment

    while (answer := await house.ask("GET", agents_path()))[1] == "unknown-sender":
        continue
    assert answer[:2] == (403, "not-accepted")
    assert fingerprint in answer[2]["detail"]
    house.accept()
    assert await house.settled(lambda: house.ask("GET", agents_path("x")), "not-accepted") == 200


async def test_an_invitation_that_is_wrong_late_or_of_another_hub_gets_a_clear_word(house: House) -> None:
    house.invite()
    house.invite(SOUTH, days=-1)
    assert await house.settled(lambda: house.enrol(SOUTH), "invitation-invalid") == 410
    assert (await house.enrol(SOUTH))[1] == "invitation-expired"
    assert (await house.enrol(token=TOKEN[:-1] + "W"))[1] == "invitation-invalid"
    assert (await house.enrol(Ref("silo-west", "west"), key=SigningKey.generate()))[1] == "invitation-invalid"
    status, code, document = await house.enrol(job="0123456789abcdef")
    assert (status, code) == (404, "wrong-job")
    assert f"this is hub {house.identity.id}" in document["detail"]
    # Whoever has the token, but not the key that it registers.
    stolen = house.keys[NORTH].verify_key.to_text()
    body = {"silo": str(NORTH), "token": TOKEN, "publicKey": stolen, "version": "0.1.0"}
    answer = await house.ask("POST", "/v1/enrolments", body, key=SigningKey.generate())
    assert answer[1] == "signature-invalid"
    assert (await house.enrol(now=time.time() - 1200))[1] == "proof-expired"
    assert "enrolment" not in house.status()


async def test_whoever_guesses_invitations_uses_up_no_request_of_the_silo(house: House) -> None:
    await house.join()
    house.gateway.admission.limits = replace(
        house.gateway.admission.limits, requests_per_second=0.001, burst=3
    )
    house.gateway.admission._allowances.clear()
    for guess in range(5):
        answer = await house.enrol(token=f"guess {guess}", key=SigningKey.generate())
        assert answer[1] == "invitation-invalid"
    assert (await house.ask("GET", agents_path("x")))[0] == 200


async def test_a_new_invitation_gives_a_silo_another_key(house: House) -> None:
    await house.join()
    house.invite(token="the next token", publicKey=house.keys[NORTH].verify_key.to_text())
    key = SigningKey.generate()
    answer = await house.settled(lambda: house.enrol(token="the next token", key=key), "invitation-invalid")
    assert answer == 201
    assert (
        await house.settled(lambda: house.ask("GET", agents_path("x"), key=key), "signature-invalid") == 403
    )
    assert (await house.ask("GET", agents_path("x"), key=key))[1] == "not-accepted"


async def test_a_silo_hears_of_its_own_agents_signed_by_the_hub(house: House) -> None:
    await house.join()
    await house.join(SOUTH)
    house.propose(SOUTH, "digits-south-1")
    poll = asyncio.ensure_future(house.ask("GET", agents_path(await revision_of(house), wait=60)))
    await asyncio.sleep(0)
    made = house.propose()
    status, _, sealed = await poll
    assert status == 200
    document = open_agents(sealed, house.identity.key.verify_key, str(NORTH))
    told = {name: value for name, value in made["spec"].items() if name != "route"}
    assert document["agents"] == [{"name": "digits-north-1", "uid": uid_of(made), "spec": told}]
    assert document["version"] == int(made["metadata"]["resourceVersion"])
    assert (await house.ask("GET", agents_path(document["revision"])))[0] == 204
    with pytest.raises(Problem, match="signature"):
        open_agents(sealed, SigningKey.generate().verify_key, str(NORTH))
    with pytest.raises(Problem, match="wrong-sender"):
        open_agents(sealed, house.identity.key.verify_key, str(SOUTH))
    assert house.status()["lastSeen"]


async def revision_of(house: House) -> str:
    status, _, sealed = await house.ask("GET", agents_path("x"))
    assert status == 200
    return str(open_agents(sealed, house.identity.key.verify_key, str(NORTH))["revision"])


async def test_a_report_changes_the_status_of_ones_own_agent_only(house: House) -> None:
    await house.join()
    await house.join(SOUTH)
    mine, other = house.propose(), house.propose(SOUTH, "digits-south-1")
    path = f"/v1/silos/{NORTH.namespace}/{NORTH.name}/agents/digits-north-1/status"
    ready = {"type": "Ready", "status": "True", "reason": "Running", "message": ""}
    ready["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    connected = ready | {"type": "Connected"}
    report = {
        "uid": uid_of(mine),
        "status": {"phase": "Running", "conditions": [ready, connected], "later": 1},
    }
    assert await house.settled(lambda: house.ask("PUT", path, report), "unknown-agent") == 204
    found = house.status(SILO_AGENT, Ref(NORTH.namespace, "digits-north-1"))
    assert (found["phase"], found["conditions"]) == ("Running", [ready])
    assert "later" not in found

    assert (await house.ask("PUT", path, report | {"uid": uid_of(other)}))[1] == "unknown-agent"
    foreign = path.replace("digits-north-1", "digits-south-1")
    assert (await house.ask("PUT", foreign, report))[1] == "unknown-agent"
    theirs = foreign.replace("silo-north/north", "silo-south/south")
    assert (await house.ask("PUT", theirs, report | {"uid": uid_of(other)}))[1] == "unknown-sender"
    assert (await house.ask("PUT", path, report | {"spec": {}}))[1] == "malformed"
    assert (await house.ask("PUT", path, report | {"status": {"phase": 7}}))[1] == "malformed"
    assert house.cluster.peek(SILO_AGENT, Ref(NORTH.namespace, "digits-north-1"))["spec"] == mine["spec"]
    assert not house.status(SILO_AGENT, Ref(SOUTH.namespace, "digits-south-1"))


def offer_of(ref: Ref, key: SigningKey) -> Object:
    """What the institution's own Silo offers, with its signature."""
    metadata = {"name": ref.name, "namespace": ref.namespace}
    spec = {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]}
    return sign_offer(Silo.model_validate({"metadata": metadata, "spec": spec}), datetime.now(UTC), key)


async def test_an_offer_is_published_as_it_was_signed(house: House) -> None:
    await house.join()
    statement = offer_of(NORTH, house.keys[NORTH])
    path = f"/v1/silos/{NORTH.namespace}/{NORTH.name}/offer"
    assert (await house.ask("PUT", path, statement))[0] == 204
    assert house.status()["offer"] == statement
    assert (await house.ask("PUT", path, offer_of(NORTH, SigningKey.generate())))[1] == "signature-invalid"
    assert (await house.ask("PUT", path, offer_of(SOUTH, house.keys[NORTH])))[1] == "wrong-sender"
    assert (await house.ask("PUT", path, {"datasets": []}))[1] == "malformed"
    assert house.status()["offer"] == statement
    assert {"enrolment", "hub", "lastSeen"} <= house.status().keys(), "no writer took back what another wrote"


async def test_a_revoked_silo_is_refused_with_its_next_request_and_in_the_middle_of_a_poll(
    house: House,
) -> None:
    await house.join()
    made = house.propose()
    job = made["spec"]["job"]["uid"]
    while house.gateway.hub.route(job, str(NORTH)) is None:
        await asyncio.sleep(0)
    poll = asyncio.ensure_future(house.ask("GET", agents_path(await revision_of(house), wait=60)))
    while not house.gateway.admission.open:
        await asyncio.sleep(0)
    house.accept(revoked=True)
    assert (await poll)[:2] == (403, "unknown-sender")
    assert (await house.ask("GET", agents_path()))[1] == "unknown-sender"
    route = house.gateway.hub.route(job, str(NORTH))
    assert route is not None
    assert route.closed is not None
    assert route.closed.code == "unknown-sender"
    assert (await house.enrol())[1] == "invitation-invalid"


async def test_an_invitation_after_a_revocation_readmits_nobody_who_has_not_used_it(house: House) -> None:
    await house.join()
    job = house.propose()["spec"]["job"]["uid"]
    house.accept(revoked=True)
    house.invite(token="the next token", revoked=False, publicKey=None)
    while (answer := await house.ask("GET", agents_path()))[2]["detail"].find("was revoked") >= 0:
        continue
    assert answer[:2] == (403, "unknown-sender")
    assert "newest invitation" in answer[2]["detail"]
    # Nor in a job that runs, nor may it speak of keys and leaving.
    while (route := house.gateway.hub.route(job, str(NORTH))) is None:
        await asyncio.sleep(0)
    assert route.closed is not None
    assert route.closed.code == "not-accepted"
    old, new = house.keys[NORTH], SigningKey.generate()
    rotation = sign_rotation(str(NORTH), old, new, datetime.now(UTC))
    assert (await house.ask("POST", own_path("key"), rotation))[1] == "unknown-sender"
    leaving = sign_leaving(str(NORTH), house.identity.id, datetime.now(UTC), old)
    assert (await house.ask("PUT", own_path("leaving"), leaving))[1] == "unknown-sender"
    assert (await house.enrol())[1] == "invitation-invalid"
    # With the new invitation the same key may be registered again, and waits for a person.
    assert await house.settled(lambda: house.enrol(token="the next token"), "invitation-invalid") == 201
    assert await house.settled(lambda: house.ask("GET", agents_path()), "unknown-sender") == 403
    assert (await house.ask("GET", agents_path()))[1] == "not-accepted"
    house.accept()
    assert await house.settled(lambda: house.ask("GET", agents_path("x")), "not-accepted") == 200
    route = house.gateway.hub.route(job, str(NORTH))
    assert route is not None
    assert route.closed is None


async def test_an_api_server_that_is_away_is_no_final_refusal(house: House) -> None:
    await house.join()
    made = house.propose()
    path = f"/v1/silos/{NORTH.namespace}/{NORTH.name}/agents/digits-north-1/status"
    report = {"uid": uid_of(made), "status": {"phase": "Running"}}
    assert await house.settled(lambda: house.ask("PUT", path, report), "unknown-agent") == 204
    house.broken = Unavailable("no connection")
    assert (await house.ask("PUT", path, report | {"status": {"phase": "Failed"}}))[:2] == (
        503,
        "unreachable",
    )
    house.broken = None
    assert (await house.ask("PUT", path, report | {"status": {"phase": "Failed"}}))[0] == 204


async def test_a_route_is_of_a_silos_own_agent_in_its_own_namespace(house: House) -> None:
    await house.join()
    made = house.propose()
    job = made["spec"]["job"]["uid"]
    while (route := house.gateway.hub.route(job, str(NORTH))) is None:
        await asyncio.sleep(0)
    trust, way = made["spec"]["trust"], made["spec"]["route"]
    assert (route.url, route.ca, route.key.to_text()) == (
        way["url"],
        way["caCertificate"],
        trust["publicKey"],
    )
    assert house.gateway.hub.route(job, str(SOUTH)) is None
    assert house.gateway.hub.route("another", str(NORTH)) is None


def own_path(rest: str, ref: Ref = NORTH) -> str:
    return f"/v1/silos/{ref.namespace}/{ref.name}/{rest}"


async def test_a_new_key_is_announced_by_both_keys_and_is_the_silos_from_then_on(house: House) -> None:
    await house.join()
    old, new = house.keys[NORTH], SigningKey.generate()
    rotation = sign_rotation(str(NORTH), old, new, datetime.now(UTC))
    assert (await house.ask("POST", own_path("key"), rotation))[0] == 204
    assert house.status()["rotations"] == [rotation]
    assert (await house.ask("GET", agents_path("x"), key=new))[0] == 200
    assert (await house.ask("GET", agents_path("x"), key=old))[1] == "signature-invalid"
    assert (await house.ask("PUT", own_path("offer"), offer_of(NORTH, new), key=new))[0] == 204
    # The answer was lost, and the silo asks once more as it did.
    writes = len(house.cluster.writes)
    assert (await house.ask("POST", own_path("key"), rotation))[0] == 204
    assert len(house.cluster.writes) == writes
    assert {"enrolment", "hub", "lastSeen", "offer"} <= house.status().keys()

    # Another machine with the old key announces one of its own.
    other = SigningKey.generate()
    answer = await house.ask(
        "POST", own_path("key"), sign_rotation(str(NORTH), old, other, datetime.now(UTC))
    )
    assert answer[:2] == (409, "key-superseded")
    assert new.verify_key.fingerprint in answer[2]["detail"]
    back = sign_rotation(str(NORTH), new, old, datetime.now(UTC))
    assert (await house.ask("POST", own_path("key"), back, key=new))[1] == "malformed"
    third = sign_rotation(str(NORTH), new, other, datetime.now(UTC))
    assert (await house.ask("POST", own_path("key"), third, key=other))[1] == "signature-invalid"
    assert (await house.ask("POST", own_path("key"), third, key=new))[0] == 204
    assert house.status()["rotations"] == [rotation, third]
    # What was registered is what the next invitation replaces, with all that followed upon it.
    house.keys[NORTH] = SigningKey.generate()
    house.invite(token="the next token", publicKey=old.verify_key.to_text())
    assert await house.settled(lambda: house.enrol(token="the next token"), "invitation-invalid") == 201
    assert "rotations" not in house.status()
    assert (await house.ask("GET", agents_path("x")))[1] == "not-accepted"


async def test_a_record_of_keys_that_somebody_has_changed_lets_no_key_ask(house: House) -> None:
    await house.join()
    forged = sign_rotation(str(SOUTH), house.keys[NORTH], SigningKey.generate(), datetime.now(UTC))
    silo = house.cluster.peek(SILO_KIND, NORTH)
    silo["status"]["rotations"] = [forged]
    house.cluster.put(silo)
    while (answer := await house.ask("GET", agents_path("x")))[0] == 200:
        continue
    assert answer[:2] == (403, "not-accepted")
    assert "record of the keys" in answer[2]["detail"]


async def test_a_silo_that_has_left_is_told_so_until_it_is_invited_again(house: House) -> None:
    await house.join()
    made = house.propose()
    job = made["spec"]["job"]["uid"]
    path, key = own_path("leaving"), house.keys[NORTH]
    poll = asyncio.ensure_future(house.ask("GET", agents_path(await revision_of(house), wait=60)))
    wrong = sign_leaving(str(NORTH), "0123456789abcdef", datetime.now(UTC), key)
    assert (await house.ask("PUT", path, wrong))[1] == "wrong-job"
    said = sign_leaving(str(NORTH), house.identity.id, datetime.now(UTC), key)
    assert (await house.ask("PUT", path, said, key=SigningKey.generate()))[1] == "signature-invalid"
    assert (await house.ask("PUT", path, said))[0] == 204
    assert house.status()["leaving"] == said
    assert (await poll)[:2] == (410, "silo-left")
    assert (await house.ask("GET", agents_path()))[:2] == (410, "silo-left")
    route = house.gateway.hub.route(job, str(NORTH))
    assert route is not None
    assert route.closed is not None
    assert route.closed.code == "silo-left"
    later = sign_leaving(str(NORTH), house.identity.id, datetime.now(UTC) + timedelta(hours=1), key)
    assert (await house.ask("PUT", path, later))[0] == 204
    assert house.status()["leaving"] == said
    assert (await house.enrol())[:2] == (410, "silo-left")

    house.invite(token="the next token", publicKey=key.verify_key.to_text())
    answer = await house.settled(lambda: house.enrol(token="the next token"), "invitation-invalid")
    assert answer == 201
    assert "leaving" not in house.status()
    assert (await house.ask("GET", agents_path("x")))[0] == 200
