"""Another key of an institution with a cluster of its own: nothing is lost wherever its process ends."""

from __future__ import annotations

import asyncio

import pytest

from fedsilo.errors import Problem
from fedsilo.hub.failures import Unreachable
from fedsilo.silo.decision import read_decision
from fedsilo.silo.offer import read_offer
from fedsilo.silo.rotation import keys_since
from fedsilo_operator.cluster.interface import ClusterError
from fedsilo_operator.objects import EVENT, JOB, SECRET, SILO_AGENT, Kind, Ref
from fedsilo_operator.silo import key_secret
from tests.operator_fakes.virtual import run
from tests.unit.operator.connector.bench import Institution, virtually
from tests.unit.operator.silo.harness import AGENT_REF, NAME, SILO_REF

KEY_REF = Ref(SILO_REF.namespace, "fedsilo-signing-key")
UNREACHABLE_ERROR = Unreachable(
    "hub.example:443: no connection (timed out); let the firewall permit TCP to it"
)


def newest_key(here: Institution) -> str:
    return key_secret.newest_key(here.cluster.peek(SECRET, KEY_REF), KEY_REF).verify_key.to_text()


def entries(here: Institution) -> int:
    return len(here.cluster.peek(SECRET, KEY_REF)["data"])


def ready_condition(here: Institution) -> str:
    (found,) = (one for one in here.silo()["status"]["conditions"] if one["type"] == "Ready")
    return f"{found['status']} {found['reason']}: {found['message']}"


async def taken_over(here: Institution, old: str, seconds: float = 300.0) -> str:
    """Wait for the next key; it is what hub, Silo and Secret have, and the chain leads to it."""
    await here.wait_until(
        lambda: here.public_key() != old and here.hub.current_key().to_text() == here.public_key(), seconds
    )
    new = here.public_key()
    assert newest_key(here) == new
    rotations = here.silo()["status"]["rotations"]
    assert keys_since(str(SILO_REF), old, rotations) == (old, new)
    assert [key.to_text() for key in here.hub.rotations] == [new]
    await here.wait_until(lambda: here.hub.offer == here.silo()["status"]["offer"])
    read_offer(here.hub.offer, str(SILO_REF), new)
    await here.wait_until(lambda: here.hub_condition() == ("True", "HubReached"))
    return new


@virtually
async def test_a_job_runs_across_the_rotation_and_the_next_one_has_the_new_key(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    here.propose(suspend=False)
    await here.wait_until(lambda: here.cluster.peek(JOB, Ref(SILO_REF.namespace, f"{NAME}-guard")))
    await here.wait_until(lambda: here.reported_status().get("phase") == "Starting")
    began = here.agent()["status"]["configuration"]
    here.rotate_key()
    new = await taken_over(here, old)

    # What runs goes on, and is spoken of with the key that it began with.
    await asyncio.sleep(7200)
    status = here.agent()["status"]
    assert (status["phase"], status["configuration"]) == ("Starting", began)
    assert read_decision(status["decision"], old).decision == "Admitted"
    assert key_secret.key_of(here.cluster.peek(SECRET, KEY_REF), old) is not None
    here.install(methods=["scaffold"])
    await here.wait_until(lambda: here.reported_status()["phase"] == "Refused")
    assert read_decision(here.reported_status()["decision"], old).decision == "Refused"

    # The next job has the new key, and the one before goes once nobody needs it.
    here.hub.remove(NAME)
    await here.wait_until(lambda: not here.is_there())
    here.cluster.collect_garbage()
    here.install()
    here.propose("hub-2", suspend=False)
    await here.wait_until(lambda: here.reported_status().get("phase") == "Starting")
    assert read_decision(here.reported_status()["decision"], new).decision == "Admitted"
    await here.wait_until(lambda: entries(here) == 1, 3600)
    assert newest_key(here) == new


@virtually
async def test_nothing_changes_until_the_hub_has_taken_it(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    here.hub.away = UNREACHABLE_ERROR
    here.hub.news()
    here.rotate_key()
    await here.wait_until(lambda: "KeyAnnounced" in ready_condition(here))
    await asyncio.sleep(3600)
    assert here.public_key() == old
    assert newest_key(here) in ready_condition(here)
    assert ready_condition(here).startswith("True")
    assert here.hub_condition() == ("False", "HubUnreachable")
    here.hub.away = None
    await taken_over(here, old)
    assert f"KeyReady: The silo signs with {here.public_key()}" in ready_condition(here)
    reasons = [event["reason"] for event in here.cluster.objects(EVENT) if event["reason"].startswith("Key")]
    assert reasons.count("KeyAnnounced") == 1


@virtually
async def test_a_hub_that_refuses_the_key_changes_nothing_else(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    here.hub.rotation_refused = Problem("too-long", "silo silo-north/north has announced 64 keys")
    here.rotate_key()
    await here.wait_until(
        lambda: any(event["reason"] == "HubRefused" for event in here.cluster.objects(EVENT))
    )
    (event,) = (event for event in here.cluster.objects(EVENT) if event["reason"] == "HubRefused")
    assert "has announced 64 keys" in event["message"]
    here.propose()
    await here.wait_until(lambda: here.reported_status().get("phase") == "Admitted")
    read_decision(here.reported_status()["decision"], old)
    here.hub.rotation_refused = None
    await taken_over(here, old, 660.0)


@virtually
async def test_a_hub_that_cannot_take_the_key_now_is_asked_again_soon(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    here.hub.rotation_refused = Problem("unreachable", "the API server does not answer")
    here.rotate_key()
    await here.wait_until(lambda: here.hub.requests.count("rotate") > 1)
    assert here.hub_condition() == ("False", "HubUnreachable")
    here.hub.rotation_refused = None
    await taken_over(here, old)
    assert not [event for event in here.cluster.objects(EVENT) if event["reason"] == "HubRefused"]


@virtually
async def test_what_was_done_is_not_done_again(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    here.rotate_key()
    new = await taken_over(here, old)
    await here.kill()
    here.start()
    await asyncio.sleep(7200)
    assert here.public_key() == new
    here.rotate_key()
    await here.wait_until(lambda: here.public_key() not in (old, new))
    assert [key.to_text() for key in here.hub.rotations] == [new, here.public_key()]


class _Stop:
    """Ends the process of an institution before or after its nth write."""

    def __init__(self, here: Institution, number: int) -> None:
        self.here, self.left = here, number
        self.where = ""

    def __call__(self, verb: str, kind: Kind) -> ClusterError | None:
        if verb in ("create", "apply", "merge") and self.left > 0:
            self.left -= 1
            if self.left == 0:
                self.where = f"{verb} {kind}"
                self.here.end_now()
        return None


def _stopped_at(number: int) -> str:
    """Rotate with a stop there; where that was, or nothing when all was done before."""

    async def run_rotation() -> str:
        here = Institution()
        try:
            await here.join()
            old = here.public_key()
            here.propose(suspend=False)
            await here.wait_until(lambda: here.reported_status().get("phase") == "Starting")
            stop = _Stop(here, number)
            here.cluster.faults = stop
            here.rotate_key()
            await here.until_ended(lambda: here.hub.offer and here.hub.offer["publicKey"] != old)
            await here.kill()
            here.start()
            await taken_over(here, old)
            assert here.agent()["status"]["phase"] == "Starting"
            read_decision(here.agent()["status"]["decision"], old)
            assert here.cluster.peek(SILO_AGENT, AGENT_REF)["spec"]["trust"]["publicKey"] == old
            return stop.where
        finally:
            await here.kill()

    return str(run(run_rotation()))


def test_a_process_that_ends_at_any_write_goes_on_where_it_was() -> None:
    places = []
    for number in range(1, 40):
        place = _stopped_at(number)
        if not place:
            break
        places.append(place)
    else:
        pytest.fail("there was always another write")
    assert sum(place.startswith("merge") for place in places) == 2, "before and after"
    assert len(places) >= 8, places


@virtually
async def test_the_process_may_end_between_the_hubs_answer_and_its_own_word(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    here.hub.after_rotation = here.end_now
    here.rotate_key()
    await here.until_ended(lambda: False)
    here.hub.after_rotation = _do_nothing
    assert here.public_key() == old
    assert here.hub.current_key().to_text() == newest_key(here)
    await here.kill()
    here.start()
    await taken_over(here, old)
    assert here.hub.requests.count("rotate") == 2


def _do_nothing() -> None: ...


@virtually
async def test_an_announced_key_that_is_gone_is_not_announced_again(here: Institution) -> None:
    await here.join()
    old = here.public_key()
    before = here.cluster.peek(SECRET, KEY_REF)
    here.hub.away = UNREACHABLE_ERROR
    here.hub.news()
    here.rotate_key()
    await here.wait_until(lambda: "KeyAnnounced" in ready_condition(here))
    lost = newest_key(here)
    here.cluster.put({**before, "data": {"key.pem": before["data"]["key.pem"]}})
    here.hub.away = None
    await taken_over(here, old)
    assert here.public_key() != lost
