"""Another key for silos of the hub's own cluster, where no hub is between: asked for, published, the old one gone."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.silo.decision import read_decision
from fedsilo.silo.offer import read_offer
from fedsilo.silo.rotation import keys_since, sign_rotation
from fedsilo.wire import SigningKey, VerifyKey
from fedsilo_operator.cluster.interface import CallRefused
from fedsilo_operator.objects import EVENT, SECRET, SILO_AGENT, SILO_KIND, Ref
from fedsilo_operator.plan import MergeAction, Plan
from fedsilo_operator.silo import key_secret
from fedsilo_operator.silo.key_secret import secret
from fedsilo_operator.silo.signing_key import KeyObservation, reconcile
from tests.operator_fakes.virtual import run
from tests.unit.operator.silo.bench import KEY_REF, Bench, fresh_object, operator
from tests.unit.operator.silo.harness import AGENT_REF, START, agent, silo

FIRST_KEY, SECOND_KEY, THIRD_KEY = (SigningKey.from_seed(letter * 32) for letter in (b"1", b"2", b"3"))
SILO = "silo-north/north"


def text(key: SigningKey) -> str:
    return key.verify_key.to_text()


def entry(key: SigningKey) -> str:
    return base64.b64encode(key.to_pem()).decode()


def stored_secret(newest: SigningKey, *before: SigningKey, own: bool = True) -> Object:
    found = secret("silo-north", newest)
    found["metadata"] |= {"uid": "s-1", "resourceVersion": "7"} | ({} if own else {"labels": {}})
    found["data"] |= {f"{key.verify_key.key_id}.pem": entry(key) for key in before}
    return found


def a_silo(
    published: SigningKey, asked: SigningKey | None = None, *rotations: Mapping[str, Any], **status: Any
) -> Object:
    content = silo()
    content["metadata"]["annotations"] = (
        {} if asked is None else {"fedsilo.io/rotate-key": asked.verify_key.key_id}
    )
    content["status"] = {"publicKey": text(published), **status}
    if rotations:
        content["status"]["rotations"] = list(rotations)
    return content


def rotation_plan(content: Object, found: Object, **more: Any) -> Plan:
    return reconcile(KeyObservation(content, found, **more), START, lambda: THIRD_KEY)


def ready_condition(plan: Plan) -> tuple[str, str, str]:
    assert plan.status is not None
    only, _ = plan.status["conditions"]
    return only["status"], only["reason"], only["message"]


def change(plan: Plan) -> Object:
    (action,) = plan.actions
    assert isinstance(action, MergeAction)
    return action.object


def test_the_next_key_and_the_one_before_are_written_at_once() -> None:
    plan = rotation_plan(a_silo(FIRST_KEY, FIRST_KEY), stored_secret(FIRST_KEY))
    assert plan.status is None, "read again before anything is said about it"
    assert change(plan)["metadata"] == {
        "name": "fedsilo-signing-key",
        "namespace": "silo-north",
        "uid": "s-1",
        "resourceVersion": "7",
    }
    assert change(plan)["data"] == {
        "key.pem": entry(THIRD_KEY),
        f"{FIRST_KEY.verify_key.key_id}.pem": entry(FIRST_KEY),
    }


def test_what_is_asked_of_an_earlier_key_is_done() -> None:
    assert not rotation_plan(a_silo(SECOND_KEY, FIRST_KEY), stored_secret(SECOND_KEY)).actions


def test_the_announcement_is_signed_by_both_and_published_with_key_and_offer() -> None:
    plan = rotation_plan(a_silo(FIRST_KEY, FIRST_KEY), stored_secret(SECOND_KEY, FIRST_KEY))
    assert not plan.actions
    assert plan.status is not None
    assert plan.status["publicKey"] == text(SECOND_KEY)
    assert keys_since(SILO, text(FIRST_KEY), plan.status["rotations"]) == (text(FIRST_KEY), text(SECOND_KEY))
    read_offer(plan.status["offer"], SILO, text(SECOND_KEY))
    assert [event.reason for event in plan.events] == ["KeyReady"]


def test_a_key_waits_for_the_hub_and_its_announcement_is_not_signed_again() -> None:
    waiting = rotation_plan(a_silo(FIRST_KEY), stored_secret(SECOND_KEY, FIRST_KEY), follows_hub=True)
    assert waiting.status is not None
    assert waiting.status["publicKey"] == text(FIRST_KEY)
    assert ready_condition(waiting)[:2] == ("True", "KeyAnnounced")
    read_offer(waiting.status["offer"], SILO, text(FIRST_KEY))
    content = a_silo(FIRST_KEY) | {"status": waiting.status}
    assert rotation_plan(content, stored_secret(SECOND_KEY, FIRST_KEY), follows_hub=True).settled
    other = {**waiting.status, "followed": {"hub": "0" * 16, "version": 1, "publicKey": text(FIRST_KEY)}}
    assert rotation_plan(
        content | {"status": other}, stored_secret(SECOND_KEY, FIRST_KEY), follows_hub=True
    ).settled
    taken = {**waiting.status, "followed": {"hub": "0" * 16, "version": 1, "publicKey": text(SECOND_KEY)}}
    done = rotation_plan(content | {"status": taken}, stored_secret(SECOND_KEY, FIRST_KEY), follows_hub=True)
    assert done.status is not None
    assert done.status["publicKey"] == text(SECOND_KEY)
    assert done.status["rotations"] == waiting.status["rotations"]


def test_an_announcement_of_a_key_that_is_gone_is_replaced() -> None:
    lost = sign_rotation(SILO, FIRST_KEY, THIRD_KEY, START)
    plan = rotation_plan(
        a_silo(FIRST_KEY, None, lost), stored_secret(SECOND_KEY, FIRST_KEY), follows_hub=True
    )
    assert plan.status is not None
    assert keys_since(SILO, text(FIRST_KEY), plan.status["rotations"]) == (text(FIRST_KEY), text(SECOND_KEY))


def test_a_secret_of_the_institution_is_rotated_there() -> None:
    plan = rotation_plan(a_silo(FIRST_KEY, FIRST_KEY), stored_secret(FIRST_KEY, own=False))
    assert not plan.actions
    status, reason, message = ready_condition(plan)
    assert (status, reason) == ("True", "KeyKept")
    assert "put the new key there into key.pem, and this one into another entry" in message
    assert [event.type for event in plan.events] == ["Warning"]
    theirs = stored_secret(SECOND_KEY, own=False)
    theirs["data"]["before.pem"] = entry(FIRST_KEY)
    done = rotation_plan(a_silo(FIRST_KEY, FIRST_KEY), theirs)
    assert done.status is not None
    assert done.status["publicKey"] == text(SECOND_KEY)
    late = a_silo(SECOND_KEY, None, *done.status["rotations"])
    late["status"]["rotations"][0]["succession"]["time"] = "2020-01-01T00:00:00Z"
    assert not rotation_plan(late, theirs).actions, "it removes there what it wants to"


def test_a_key_that_was_replaced_does_not_come_back() -> None:
    rotation = sign_rotation(SILO, FIRST_KEY, SECOND_KEY, START)
    plan = rotation_plan(a_silo(SECOND_KEY, None, rotation), stored_secret(FIRST_KEY, SECOND_KEY))
    assert plan.status is not None
    assert plan.status["publicKey"] == text(SECOND_KEY)
    assert plan.status["rotations"] == [rotation]
    assert ready_condition(plan)[:2] == ("False", "KeyInvalid")
    assert "replaced before" in ready_condition(plan)[2]


def test_a_key_goes_an_hour_after_it_was_replaced_when_nobody_needs_it() -> None:
    rotation = sign_rotation(SILO, FIRST_KEY, SECOND_KEY, START)
    content, found = a_silo(SECOND_KEY, None, rotation), stored_secret(SECOND_KEY, FIRST_KEY)
    found["data"]["note.pem"] = entry(THIRD_KEY)
    assert not rotation_plan(content, found).actions
    later = START.replace(hour=14)

    def at_last(**more: Any) -> Plan:
        return reconcile(KeyObservation(content, found, **more), later, lambda: THIRD_KEY)

    assert not at_last(needed=frozenset({text(FIRST_KEY)})).actions
    assert change(at_last())["data"] == {f"{FIRST_KEY.verify_key.key_id}.pem": None}


def rotate(bench: Bench) -> str:
    found = bench.silo()
    old: str = found["status"]["publicKey"]
    key_id = VerifyKey.from_text(old).key_id
    bench.cluster.put(
        {**found, "metadata": found["metadata"] | {"annotations": {"fedsilo.io/rotate-key": key_id}}}
    )
    return old


def test_a_refused_write_leaves_the_silo_ready_and_says_why() -> None:
    async def scenario() -> None:
        async with operator() as bench:
            bench.cluster.put(fresh_object(silo()))
            await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("True", "KeyReady"))
            bench.cluster.refuses = lambda obj: (
                CallRefused("patch is forbidden") if obj["kind"] == "Secret" else None
            )
            old = rotate(bench)
            await bench.wait_until(lambda: bench.ready_condition(bench.silo()) == ("True", "ApiRefused"))
            assert bench.silo()["status"]["publicKey"] == old
            assert "patch is forbidden" in str(bench.silo()["status"]["conditions"])
            bench.cluster.refuses = lambda _obj: None
            await bench.wait_until(lambda: bench.silo()["status"]["publicKey"] != old, 900)
            assert bench.ready_condition(bench.silo()) == ("True", "KeyReady")

    run(scenario())


def test_all_silos_of_a_namespace_follow_and_an_agent_that_has_begun_ends_with_its_key() -> None:
    async def scenario() -> None:
        async with operator() as bench:
            bench.cluster.put(fresh_object(silo()))
            second = fresh_object(silo())
            second["metadata"] |= {"name": "south"}
            bench.cluster.put(second)
            south = Ref("silo-north", "south")
            await bench.wait_until(lambda: bench.ready_condition(bench.silo())[0] == "True")
            await bench.wait_until(lambda: bench.cluster.peek(SILO_KIND, south)["status"]["publicKey"])
            bench.apply_agent()
            await bench.wait_until(lambda: bench.agent()["status"]["configuration"])
            old = rotate(bench)
            await bench.wait_until(lambda: bench.silo()["status"]["publicKey"] != old)
            new = bench.silo()["status"]["publicKey"]
            await bench.wait_until(
                lambda: bench.cluster.peek(SILO_KIND, south)["status"]["publicKey"] == new, 900
            )
            chain = bench.cluster.peek(SILO_KIND, south)["status"]["rotations"]
            assert keys_since(str(south), old, chain) == (old, new)
            await asyncio.sleep(7200)
            assert read_decision(bench.agent()["status"]["decision"], old).decision == "Admitted"
            assert key_secret.key_of(bench.cluster.peek(SECRET, KEY_REF), old) is not None
            bench.cluster.remove(SILO_AGENT, AGENT_REF)
            await bench.wait_until(lambda: len(bench.cluster.peek(SECRET, KEY_REF)["data"]) == 1, 900)
            assert not [event for event in bench.cluster.objects(EVENT) if event["reason"] == "KeyInvalid"]

    run(scenario())


@pytest.mark.parametrize("began", [True, False])
def test_an_agent_that_has_not_begun_with_an_earlier_key_is_not_admitted(began: bool) -> None:
    async def scenario() -> None:
        async with operator() as bench:
            bench.cluster.put(fresh_object(silo()))
            await bench.wait_until(lambda: bench.ready_condition(bench.silo())[0] == "True")
            made = fresh_object(bench_agent(bench))
            if began:
                bench.cluster.put(made)
                await bench.wait_until(lambda: bench.agent()["status"]["decision"])
            old = rotate(bench)
            await bench.wait_until(lambda: bench.silo()["status"]["publicKey"] != old)
            if not began:
                bench.cluster.put(made)
            await bench.wait_until(lambda: bench.agent()["status"]["decision"])
            await asyncio.sleep(60)
            (admitted,) = (one for one in bench.agent()["status"]["conditions"] if one["type"] == "Admitted")
            assert admitted["status"] == ("True" if began else "False"), admitted

    def bench_agent(bench: Bench) -> Object:
        return agent(publicKey=bench.silo()["status"]["publicKey"])

    run(scenario())
