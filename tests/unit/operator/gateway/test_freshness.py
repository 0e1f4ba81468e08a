"""Which of two things that the hub has said is the newer: whichever gateway said it, and after a restart of one."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.errors import Problem
from fedsilo.wire import SigningKey, open_agents, seal_agents
from fedsilo_operator.cluster.interface import Change
from fedsilo_operator.gateway.hub import Hub, HubIdentity
from fedsilo_operator.objects import SILO_AGENT, Ref
from fedsilo_operator.runtime.reflector import Reflector
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.silo.harness import SILO_REF
from tests.unit.operator.silo.harness import agent as an_agent

KEY = SigningKey.generate()
IDENTITY = HubIdentity(KEY, "https://hub.example")


class Replica:
    """A gateway's knowledge, which grows when a test says so."""

    def __init__(self, cluster: FakeCluster) -> None:
        store = Store()
        self.cluster = WriteThroughCluster(cluster, store)
        self.reflector = Reflector(self.cluster, SILO_AGENT, "", store.indexer(SILO_AGENT, ""))
        self.hub = Hub(self.cluster, store, IDENTITY, lambda: self.reflector.version)

    async def catch_up(self) -> None:
        await self.reflector._list()

    def see(self, obj: Object) -> None:
        self.reflector._note(Change("ADDED", obj))

    def agents_document(self, after: str = "") -> dict[str, Any] | None:
        told = self.hub.agents(SILO_REF, after)
        if told is None:
            return None
        document = open_agents(told.sealed, KEY.verify_key, str(SILO_REF))
        assert document["revision"] == told.revision
        return document


def put_proposal(cluster: FakeCluster, name: str, namespace: str = SILO_REF.namespace) -> Object:
    made = an_agent()
    made["metadata"] = {"name": name, "namespace": namespace, "labels": made["metadata"]["labels"]}
    made["spec"]["silo"] = {"namespace": namespace, "name": SILO_REF.name}
    return cluster.put(made)


def names(document: dict[str, Any] | None) -> list[str]:
    assert document is not None
    return [agent["name"] for agent in document["agents"]]


async def test_the_version_grows_through_changes_deletions_and_restarts() -> None:
    cluster = FakeCluster()
    first = Replica(cluster)
    made = put_proposal(cluster, "one")
    await first.catch_up()
    before = first.agents_document()
    assert before is not None
    assert before["version"] == int(made["metadata"]["resourceVersion"])
    cluster.remove(SILO_AGENT, Ref(SILO_REF.namespace, "one"))
    restarted = Replica(cluster)
    await restarted.catch_up()
    after = restarted.agents_document(before["revision"])
    assert after is not None
    assert (names(before), names(after)) == (["one"], [])
    assert after["version"] > before["version"]


async def test_a_gateway_that_lags_behind_tells_nothing_until_it_has_caught_up() -> None:
    cluster = FakeCluster()
    slow, quick = Replica(cluster), Replica(cluster)
    put_proposal(cluster, "one")
    await slow.catch_up()
    two = put_proposal(cluster, "two")
    await quick.catch_up()
    newest = quick.agents_document()
    assert newest is not None
    assert slow.agents_document(newest["revision"]) is None, "it knows less than the silo"
    older = slow.agents_document()
    assert older is not None
    assert older["version"] < newest["version"]
    slow.see(two)
    assert slow.agents_document(newest["revision"]) is None, "it knows the same"
    assert slow.agents_document(older["revision"]) == newest


async def test_what_concerns_other_silos_is_no_news_and_does_not_set_the_order_back() -> None:
    cluster = FakeCluster()
    replica = Replica(cluster)
    put_proposal(cluster, "one")
    await replica.catch_up()
    before = replica.agents_document()
    assert before is not None
    replica.see(put_proposal(cluster, "one", "another-silo"))
    assert replica.agents_document(before["revision"]) is None
    later = replica.agents_document()
    assert later is not None
    assert (later["agents"], later["version"] > before["version"]) == (before["agents"], True)


async def test_the_keys_of_all_silos_are_told_as_the_operator_wrote_them() -> None:
    cluster = FakeCluster()
    made = put_proposal(cluster, "one")
    made["spec"]["trust"]["members"] = [
        {"silo": str(SILO_REF), "publicKey": KEY.verify_key.to_text()},
        {"silo": "silo-a/a", "publicKey": SigningKey.generate().verify_key.to_text()},
    ]
    cluster.put(made)
    replica = Replica(cluster)
    await replica.catch_up()
    document = replica.agents_document()
    assert document is not None
    (told,) = document["agents"]
    assert told["spec"]["trust"] == made["spec"]["trust"]


async def test_what_a_gateway_wrote_itself_does_not_count_as_seen() -> None:
    """Between its write and what it has watched may lie changes of others, which it has not seen."""
    cluster = FakeCluster()
    replica = Replica(cluster)
    one, two = put_proposal(cluster, "one"), put_proposal(cluster, "two")
    await replica.catch_up()
    cluster.remove(SILO_AGENT, Ref(SILO_REF.namespace, "one"))
    metadata = {"name": "two", "namespace": SILO_REF.namespace}
    status = {**{field: two[field] for field in ("apiVersion", "kind")}, "metadata": metadata}
    await replica.cluster.apply({**status, "status": {"phase": "Running"}}, manager="m", status=True)
    lagging = replica.agents_document()
    assert lagging is not None
    assert names(lagging) == ["one", "two"]
    other = Replica(cluster)
    await other.catch_up()
    newest = other.agents_document()
    assert newest is not None
    assert names(newest) == ["two"]
    assert (
        lagging["version"]
        == int(two["metadata"]["resourceVersion"])
        > int(one["metadata"]["resourceVersion"])
    )
    assert newest["version"] > lagging["version"]


@pytest.mark.parametrize(
    "after", ["", "x", "7", "-", "9" * 40 + "-" + "0" * 32, "1-" + "g" * 32, "²-" + "0" * 32]
)
async def test_a_revision_of_nobody_is_answered_like_none(after: str) -> None:
    cluster = FakeCluster()
    replica = Replica(cluster)
    put_proposal(cluster, "one")
    await replica.catch_up()
    assert replica.agents_document(after) == replica.agents_document() is not None


@pytest.mark.parametrize(
    "change",
    [
        {"version": -1},
        {"version": 2**63},
        {"version": True},
        {"version": "3"},
        {"revision": 3},
        {"agents": {}},
        {"agents": ["one"]},
        {"agents": [{"name": "one", "uid": "u"}]},
        {"agents": [{"name": "one", "uid": 7, "spec": {}}]},
        {"more": 1},
    ],
)
def test_what_the_hub_signed_in_another_form_is_refused(change: dict[str, Any]) -> None:
    document: dict[str, Any] = {"protocol": 1, "hub": IDENTITY.id, "silo": str(SILO_REF), "version": 3}
    document |= {"revision": "r", "agents": [{"name": "one", "uid": "u", "spec": {}}]}
    assert open_agents(seal_agents(document, KEY), KEY.verify_key, str(SILO_REF)) == document
    with pytest.raises(Problem, match="malformed"):
        open_agents(seal_agents(document | change, KEY), KEY.verify_key, str(SILO_REF))
