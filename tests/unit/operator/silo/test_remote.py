"""What the hub does about an institution outside of the cluster: nothing but to publish the key that was accepted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fedsilo.api.observed import Object, condition
from fedsilo.silo.leaving import sign_leaving
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey
from fedsilo_operator.gateway.writing import write_status
from fedsilo_operator.objects import SECRET, SILO_AGENT, SILO_KIND
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.runtime.store import Store
from fedsilo_operator.silo.controller import SiloController
from fedsilo_operator.silo.remote import is_remote, reconcile, reconcile_agent
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.silo.harness import AGENT_REF, SETTINGS, SILO_REF, START, agent, silo

SIGNING_KEY, OTHER_SIGNING_KEY = SigningKey.from_seed(b"k" * 32), SigningKey.from_seed(b"o" * 32)
KEY, OTHER_KEY = SIGNING_KEY.verify_key.to_text(), OTHER_SIGNING_KEY.verify_key.to_text()
ROTATION = sign_rotation("silo-north/north", SIGNING_KEY, OTHER_SIGNING_KEY, START)
LEAVING = sign_leaving("silo-north/north", "0123456789abcdef", START, SIGNING_KEY)
INVITATION = {"tokenDigest": "ab" * 32, "expires": "2026-01-08T00:00:00Z"}
NEXT_INVITATION = {"tokenDigest": "cd" * 32, "expires": "2026-02-08T00:00:00Z"}


def remote_silo(enrolled: str | None = None, **spec: Any) -> Object:
    content = silo()
    content["spec"] = {"remote": {"invitation": INVITATION, **spec}}
    content["status"] = (
        {}
        if enrolled is None
        else {
            "enrolment": {
                "publicKey": enrolled,
                "fingerprint": "1a2b",
                "tokenDigest": INVITATION["tokenDigest"],
            }
        }
    )
    return content


def rotated_silo(*rotations: Object, **spec: Any) -> Object:
    content = remote_silo(KEY, **spec)
    content["status"]["rotations"] = list(rotations)
    return content


def leaving_silo(statement: Object, **spec: Any) -> Object:
    content = remote_silo(KEY, **spec)
    content["status"]["leaving"] = statement
    return content


@pytest.mark.parametrize(
    ("found", "key", "reason", "text"),
    [
        (remote_silo(), None, "Invited", "ends at 2026-01-08T00:00:00Z"),
        (remote_silo(invitation=None), None, "Invited", "kubectl fedsilo invite north -n silo-north"),
        (remote_silo(KEY), None, "EnrolmentPending", "1a2b"),
        (remote_silo(KEY, publicKey=KEY), KEY, "KeyReady", KEY),
        (remote_silo(OTHER_KEY, publicKey=KEY), None, "EnrolmentPending", "registered " + OTHER_KEY),
        (remote_silo(publicKey=KEY), None, "Invited", "not used"),
        (remote_silo(KEY, publicKey=KEY, revoked=True), None, "Revoked", "invite"),
        (remote_silo(KEY, invitation=NEXT_INVITATION), None, "Invited", "1a2b is of an earlier one"),
        (remote_silo(KEY, invitation=NEXT_INVITATION), None, "Invited", "not used its invitation yet"),
        (remote_silo(KEY, invitation=None), None, "Invited", "Nobody is invited"),
        (remote_silo(KEY, invitation=NEXT_INVITATION, publicKey=KEY), KEY, "KeyReady", KEY),
        (
            remote_silo(OTHER_KEY, invitation=NEXT_INVITATION, publicKey=KEY),
            None,
            "Invited",
            "1a2b is of an earlier",
        ),
        (rotated_silo(ROTATION, invitation=NEXT_INVITATION), None, "Invited", "of an earlier one"),
        (
            rotated_silo(ROTATION, invitation=NEXT_INVITATION, publicKey=KEY),
            OTHER_KEY,
            "KeyReady",
            f"since {KEY}",
        ),
        (leaving_silo(LEAVING, invitation=NEXT_INVITATION), None, "Invited", "not used its invitation yet"),
        (leaving_silo(LEAVING, invitation=NEXT_INVITATION, publicKey=KEY), None, "Left", "invites it again"),
        (rotated_silo(ROTATION, publicKey=KEY), OTHER_KEY, "KeyReady", f"since {KEY}"),
        (rotated_silo(ROTATION, publicKey=OTHER_KEY), OTHER_KEY, "KeyReady", f"signs with {OTHER_KEY}."),
        (
            rotated_silo(ROTATION),
            None,
            "EnrolmentPending",
            OTHER_SIGNING_KEY.verify_key.fingerprint,
        ),
        (
            rotated_silo({**ROTATION, "signature": "x"}, publicKey=KEY),
            None,
            "TrustBroken",
            "status.rotations",
        ),
        (
            rotated_silo(
                sign_rotation("silo-north/north", OTHER_SIGNING_KEY, SIGNING_KEY, START), publicKey=KEY
            ),
            KEY,
            "KeyReady",
            KEY,
        ),
        (leaving_silo(LEAVING, publicKey=KEY), None, "Left", "2026-"),
        (leaving_silo({**LEAVING, "silo": "silo-south/south"}, publicKey=KEY), KEY, "KeyReady", KEY),
        (
            leaving_silo(sign_leaving("silo-north/north", "x", START, OTHER_SIGNING_KEY), publicKey=KEY),
            KEY,
            "KeyReady",
            KEY,
        ),
    ],
)
def test_a_key_counts_once_it_is_registered_and_accepted(
    found: Object, key: str | None, reason: str, text: str
) -> None:
    plan = reconcile(found, (), START)
    assert plan.status is not None
    (ready,) = plan.status["conditions"]
    assert (ready["reason"], ready["status"]) == (reason, "True" if key else "False")
    assert text in ready["message"]
    assert plan.status.get("publicKey") == key
    assert [event.reason for event in plan.events] == [reason]
    assert plan.actions == ()
    found["status"] |= plan.status
    again = reconcile(found, (), START)
    assert again.status is None
    assert again.events == ()


def test_a_key_that_is_revoked_is_withdrawn() -> None:
    found = remote_silo(KEY, publicKey=KEY, revoked=True)
    found["status"] |= {"publicKey": KEY}
    status = reconcile(found, (), START).status
    assert status is not None
    assert "publicKey" not in status


LAST_SEEN = "2026-03-01T11:56:00Z"


def seen_silo(**spec: Any) -> Object:
    """A Silo outside of the cluster that was heard of four minutes before the test begins."""
    content = remote_silo(KEY, publicKey=KEY, **spec)
    content["status"]["lastSeen"] = LAST_SEEN
    return content


def connected_condition(obj: Object) -> tuple[str, str, str]:
    found = condition(obj, "Connected")
    assert found is not None
    return found["status"], found["reason"], found["message"]


def test_a_silo_that_is_not_heard_of_is_missed_after_five_minutes_and_found_again() -> None:
    found = seen_silo()
    plan = reconcile(found, (), START)
    assert plan.status is not None
    assert plan.requeue_after == 60
    found["status"] |= plan.status
    assert connected_condition(found)[:2] == ("True", "Seen")

    missed = reconcile(found, (), START + timedelta(minutes=1))
    assert missed.status is not None
    assert missed.requeue_after is None
    assert [(event.type, event.reason) for event in missed.events] == [("Warning", "NotSeen")]
    found["status"] |= missed.status
    status, reason, message = connected_condition(found)
    assert (status, reason) == ("False", "NotSeen")
    assert f"since {LAST_SEEN}" in message
    assert condition(found, "Ready") == plan.status["conditions"][0], "its key is as good as before"
    assert reconcile(found, (), START + timedelta(hours=1)).status is None

    found["status"]["lastSeen"] = "2026-03-01T13:00:00Z"
    back = reconcile(found, (), START + timedelta(hours=1))
    assert [(event.type, event.reason) for event in back.events] == [("Normal", "Seen")]


def test_its_agents_say_so_too_until_their_part_is_over() -> None:
    found, part = seen_silo(), agent()
    assert reconcile_agent(part, remote_silo(KEY, publicKey=KEY), START).status is None
    for minutes, status in ((0, "True"), (1, "False")):
        plan = reconcile_agent(part, found, START + timedelta(minutes=minutes))
        assert plan.status is not None
        part["status"] = plan.status
        assert connected_condition(part)[0] == status
    assert reconcile_agent(part, found, START + timedelta(minutes=2)).status is None
    finished = {"type": "Finished", "status": "True", "reason": "Finished", "message": ""}
    part["status"] = {"conditions": [*part["status"]["conditions"], finished]}
    assert reconcile_agent(part, found, START + timedelta(minutes=2)).status == {"conditions": []}


async def test_the_hub_writes_beside_what_the_institution_reports() -> None:
    cluster, store = FakeCluster(), Store()
    for obj, kind in ((seen_silo(), SILO_KIND), (agent(), SILO_AGENT)):
        name = obj["metadata"]["name"]
        made = cluster.put({**obj, "metadata": {"name": name, "namespace": SILO_REF.namespace}})
        store.indexer(kind, "").update(made)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": LAST_SEEN,
    }
    reported = {"phase": "Running", "conditions": [ready]}
    written = cluster.peek(SILO_AGENT, AGENT_REF)
    await write_status(cluster, SILO_AGENT, written, reported, "fedsilo-gateway")
    store.indexer(SILO_AGENT, "").update(cluster.peek(SILO_AGENT, AGENT_REF))
    controller = SiloController(cluster, store, SETTINGS, lambda: START + timedelta(hours=1))
    await controller.reconcile(Key(SILO_AGENT, AGENT_REF))
    written = cluster.peek(SILO_AGENT, AGENT_REF)
    assert written["status"]["phase"] == "Running"
    assert {item["type"]: item["status"] for item in written["status"]["conditions"]} == {
        "Ready": "True",
        "Connected": "False",
    }
    await write_status(cluster, SILO_AGENT, written, reported | {"phase": "Failed"}, "fedsilo-gateway")
    assert connected_condition(cluster.peek(SILO_AGENT, AGENT_REF))[0] == "False"

    finished = ready | {"type": "Finished", "reason": "Finished"}
    over = {"phase": "Finished", "conditions": [ready, finished]}
    await write_status(cluster, SILO_AGENT, cluster.peek(SILO_AGENT, AGENT_REF), over, "fedsilo-gateway")
    for _ in range(2):
        store.indexer(SILO_AGENT, "").update(cluster.peek(SILO_AGENT, AGENT_REF))
        await controller.reconcile(Key(SILO_AGENT, AGENT_REF))
    written = cluster.peek(SILO_AGENT, AGENT_REF)
    assert [item["type"] for item in written["status"]["conditions"]] == ["Ready", "Finished"]


async def test_the_hub_makes_neither_key_nor_children_for_it() -> None:
    cluster, store = FakeCluster(), Store()
    content = remote_silo(KEY, publicKey=KEY)
    for obj in (content, agent()):
        made = cluster.put(
            {**obj, "metadata": {"name": obj["metadata"]["name"], "namespace": SILO_REF.namespace}}
        )
        store.indexer(SILO_KIND if obj is content else SILO_AGENT, "").update(made)
    controller = SiloController(cluster, store, SETTINGS)
    assert await controller.reconcile(Key(SILO_AGENT, AGENT_REF)) is None
    await controller.reconcile(Key(SILO_KIND, SILO_REF))
    assert cluster.objects(SECRET) == ()
    assert {(verb, kind) for verb, kind, _ in cluster.writes} == {("apply", SILO_KIND)}
    assert cluster.peek(SILO_KIND, SILO_REF)["status"]["publicKey"] == KEY


def test_a_silo_of_the_cluster_is_none() -> None:
    assert not is_remote(silo())
    assert not is_remote(None)
