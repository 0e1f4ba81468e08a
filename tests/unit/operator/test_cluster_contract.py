"""The fake cluster keeps the contract, and does the rest of what it says."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from fedsilo.api.observed import uid_of
from fedsilo_operator.cluster.interface import Change, ClusterUnavailable, Conflict, NotFound, VersionExpired
from fedsilo_operator.objects import CONFIG_MAP, Ref
from tests.contract_objects import config_map
from tests.operator_contract import Contract
from tests.operator_fakes.cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def namespace() -> str:
    return "test"


class TestFake(Contract):
    pass


async def test_a_watch_from_before_a_compaction_is_gone(cluster: FakeCluster) -> None:
    cluster.put(config_map("n"))
    cluster.compact()
    with pytest.raises(VersionExpired):
        await anext(cluster.watch(CONFIG_MAP, "100"))


async def test_a_bookmark_outlives_a_compaction(cluster: FakeCluster) -> None:
    start = (await cluster.list(CONFIG_MAP)).resource_version
    cluster.put(config_map("n") | {"kind": "Secret"})
    async with aclosing(cluster.watch(CONFIG_MAP, start)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cluster.send_bookmarks()
        bookmark: Change = await waiting
    assert bookmark.type == "BOOKMARK"
    cluster.compact()
    cluster.put(config_map("n"))
    async with aclosing(cluster.watch(CONFIG_MAP, bookmark.object["metadata"]["resourceVersion"])) as watch:
        assert (await anext(watch)).type == "ADDED"


async def test_garbage_goes_with_its_owner(cluster: FakeCluster) -> None:
    owner = cluster.put(config_map("n", "owner"))
    child = config_map("n", "child", ownerReferences=[{"uid": uid_of(owner), "name": "owner"}])
    grandchild = config_map("n", "grandchild", ownerReferences=[{"uid": uid_of(cluster.put(child))}])
    cluster.put(grandchild)
    cluster.collect_garbage()
    assert len(cluster.objects(CONFIG_MAP)) == 3
    await cluster.delete(CONFIG_MAP, Ref("n", "owner"))
    cluster.collect_garbage()
    assert not cluster.objects(CONFIG_MAP)


async def test_a_lost_answer_is_a_write_that_was_done(cluster: FakeCluster) -> None:
    answers = iter([None, ClusterUnavailable("lost")])
    cluster.faults = lambda verb, kind: next(answers)
    with pytest.raises(ClusterUnavailable):
        await cluster.create(config_map("n"))
    assert cluster.peek(CONFIG_MAP, Ref("n", "a"))


async def test_a_fault_before_a_write_prevents_it(cluster: FakeCluster) -> None:
    cluster.faults = lambda verb, kind: Conflict("no") if verb == "apply" else None
    with pytest.raises(Conflict):
        await cluster.apply(config_map("n"), manager="one")
    assert not cluster.objects(CONFIG_MAP)


async def test_nothing_is_made_in_a_namespace_that_is_gone(cluster: FakeCluster) -> None:
    cluster.put(config_map("n"))
    cluster.remove_namespace("n")
    assert not cluster.objects(CONFIG_MAP)
    with pytest.raises(NotFound, match="namespaces"):
        await cluster.apply(config_map("n"), manager="one")


async def test_writes_are_those_that_changed_something(cluster: FakeCluster) -> None:
    await cluster.apply(config_map("n"), manager="one")
    await cluster.apply(config_map("n"), manager="one")
    await cluster.delete(CONFIG_MAP, Ref("n", "none"))
    assert cluster.writes == [("apply", CONFIG_MAP, Ref("n", "a"))]
