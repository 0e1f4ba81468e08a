"""Whatever the API server does, the store ends up like it, and nobody misses a difference."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import (
    CallRefused,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    NotFound,
    VersionExpired,
)
from fedsilo_operator.objects import CONFIG_MAP, JOB_UID, POD, SECRET, Kind, Ref, ref_of
from fedsilo_operator.runtime.reflector import Reflector
from fedsilo_operator.runtime.store import MAX_REQUESTS, Indexer, Store, WriteThroughCluster
from tests.contract_objects import config_map
from tests.operator_fakes import virtual
from tests.operator_fakes.cluster import FakeCluster


class Follower:
    """Somebody who knows only what a reflector tells."""

    def __init__(self) -> None:
        self.objects: dict[Ref, Object] = {}
        self.told = 0

    def record_change(self, before: Object | None, after: Object | None) -> None:
        self.told += 1
        either = after or before
        assert either is not None
        ref = ref_of(either)
        assert self.objects.get(ref) == before, "what it says was before is what it said last"
        if after is None:
            del self.objects[ref]
        else:
            self.objects[ref] = after


def expected_objects(cluster: FakeCluster, label: str = "") -> dict[Ref, Object]:
    found = {}
    for obj in cluster.objects(CONFIG_MAP):
        del obj["metadata"]["managedFields"]
        if not label or obj["metadata"].get("labels", {}).get("x") == label:
            found[ref_of(obj)] = obj
    return found


def following(
    cluster: FakeCluster, labels: str, body: Callable[[Indexer, Follower, Reflector], Awaitable[None]]
) -> None:
    """Run a body beside a reflector, in virtual time."""

    async def run() -> None:
        indexer, follower = Indexer(), Follower()
        reflector = Reflector(cluster, CONFIG_MAP, labels, indexer)
        reflector.on_change(follower.record_change)
        running = asyncio.ensure_future(reflector.run())
        try:
            await body(indexer, follower, reflector)
            assert not running.done(), running
        finally:
            running.cancel()

    virtual.run(run())


def errors(rate: float, draw: random.Random) -> Callable[[str, Kind], ClusterError | None]:
    kinds: list[type[ClusterError]] = [ClusterUnavailable, VersionExpired, Conflict, CallRefused, NotFound]
    return lambda verb, kind: draw.choice(kinds)("fault") if draw.random() < rate else None


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.0, 0.05, 0.3, 0.7]),
    labels=st.sampled_from(["", "x=1"]),
)
def test_faults_never_leave_a_difference(seed: int, rate: float, labels: str) -> None:
    draw = random.Random(seed)
    cluster = FakeCluster(faults=errors(rate, draw))

    def happen() -> None:
        name = draw.choice("abcdef")
        what = draw.random()
        if what < 0.5:
            cluster.put(
                config_map("n", name, data={"v": str(draw.random())}, labels={"x": draw.choice("12")})
            )
        elif what < 0.75 and Ref("n", name) in expected_objects(cluster):
            cluster.remove(CONFIG_MAP, Ref("n", name))
        elif what < 0.85:
            cluster.compact()
        elif what < 0.95:
            cluster.cut_watches()
        else:
            cluster.send_bookmarks()

    async def body(indexer: Indexer, follower: Follower, reflector: Reflector) -> None:
        for _ in range(draw.randint(1, 40)):
            happen()
            await asyncio.sleep(draw.choice([0, 0, 0.1, 5]))
        cluster.faults = lambda verb, kind: None
        await asyncio.sleep(120)
        there = expected_objects(cluster, labels[2:])
        assert indexer.objects == there
        assert follower.objects == there

    following(cluster, labels, body)


def test_a_deletion_during_an_outage_is_noticed() -> None:
    cluster = FakeCluster()
    cluster.put(config_map("n", "a"))
    cluster.put(config_map("n", "b"))

    async def body(indexer: Indexer, follower: Follower, reflector: Reflector) -> None:
        await reflector.synced.wait()
        cluster.faults = lambda verb, kind: ClusterUnavailable("down")
        cluster.cut_watches()
        await asyncio.sleep(100)
        cluster.remove(CONFIG_MAP, Ref("n", "a"))
        cluster.compact()
        cluster.faults = lambda verb, kind: None
        await asyncio.sleep(60)
        assert set(follower.objects) == {Ref("n", "b")}

    following(cluster, "", body)


def test_listing_again_tells_only_what_changed() -> None:
    cluster = FakeCluster()
    for number in range(10):
        cluster.put(config_map("n", f"c{number}"))

    async def body(indexer: Indexer, follower: Follower, reflector: Reflector) -> None:
        await reflector.synced.wait()
        told = follower.told
        cluster.cut_watches()
        await asyncio.sleep(0)
        cluster.put(config_map("n", "c3", data={"x": "1"}))
        cluster.compact()
        await asyncio.sleep(60)
        assert follower.told == told + 1

    following(cluster, "", body)


def test_bookmarks_save_a_listing() -> None:
    verbs: list[str] = []

    def count(verb: str, kind: Kind) -> None:
        verbs.append(verb)

    cluster = FakeCluster(faults=count)

    async def body(indexer: Indexer, follower: Follower, reflector: Reflector) -> None:
        await reflector.synced.wait()
        await asyncio.sleep(1)
        cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "n", "name": "s"}})
        cluster.send_bookmarks()
        await asyncio.sleep(1)
        cluster.compact()
        cluster.cut_watches()
        await asyncio.sleep(60)
        assert verbs.count("list") == 1
        assert verbs.count("watch") == 2

    following(cluster, "", body)


def test_an_outage_is_met_with_patience() -> None:
    attempts: list[float] = []

    def raise_unavailable(verb: str, kind: Kind) -> ClusterError:
        attempts.append(asyncio.get_running_loop().time())
        return ClusterUnavailable("down")

    cluster = FakeCluster(faults=raise_unavailable)

    async def body(indexer: Indexer, follower: Follower, reflector: Reflector) -> None:
        await asyncio.sleep(600)
        assert not reflector.synced.is_set()
        assert len(attempts) < 60
        cluster.faults = lambda verb, kind: None
        await asyncio.sleep(31)
        assert reflector.synced.is_set()

    following(cluster, "", body)


# The store.


def labelled_config_map(namespace: str, name: str, version: int, **labels: str) -> Object:
    metadata = {"uid": name, "resourceVersion": str(version), "labels": labels, "managedFields": [{}]}
    return config_map(namespace, name, **metadata)


def test_a_store_selects_over_all_its_indexers() -> None:
    store = Store()
    one, two = store.indexer(CONFIG_MAP, "x=1"), store.indexer(CONFIG_MAP, "x=2")
    one.put(labelled_config_map("n", "a", 1, **{"x": "1", JOB_UID: "u"}))
    one.put(labelled_config_map("m", "b", 2, **{"x": "1", JOB_UID: "v"}))
    two.put(labelled_config_map("n", "c", 3, **{"x": "2", JOB_UID: "u"}))

    def names(**asked: object) -> str:
        return "".join(obj["metadata"]["name"] for obj in store.select(CONFIG_MAP, **asked))  # type: ignore[arg-type]

    assert names() == "bac"
    assert names(namespace="n") == "ac"
    assert names(labels={JOB_UID: "u"}) == "ac"
    assert names(labels={JOB_UID: "u", "x": "2"}) == "c"
    assert names(namespace="m", labels={JOB_UID: "u"}) == ""
    assert store.select(SECRET) == []
    found = store.get(CONFIG_MAP, Ref("n", "c"))
    assert found is not None
    assert "managedFields" not in found["metadata"]
    two.remove(Ref("n", "c"))
    assert store.get(CONFIG_MAP, Ref("n", "c")) is None
    assert names(labels={JOB_UID: "u"}) == "a"


@given(
    writes=st.lists(
        st.tuples(st.sampled_from("nm"), st.sampled_from("ab"), st.sampled_from("uv"), st.booleans()),
        max_size=30,
    )
)
def test_indexes_say_what_a_scan_would(writes: list[tuple[str, str, str, bool]]) -> None:
    store = Store()
    indexer = store.indexer(CONFIG_MAP, "")
    for version, (within, name, uid, there) in enumerate(writes):
        if there:
            indexer.put(labelled_config_map(within, name, version, **{JOB_UID: uid}))
        else:
            indexer.remove(Ref(within, name))
    namespaces: list[str | None] = ["n", "m", None]
    for namespace in namespaces:
        for uid in "uv":
            assert store.select(CONFIG_MAP, namespace=namespace, labels={JOB_UID: uid}) == [
                obj
                for ref, obj in sorted(indexer.objects.items())
                if namespace in (None, ref.namespace) and obj["metadata"]["labels"][JOB_UID] == uid
            ]


async def test_what_was_written_is_seen_at_once() -> None:
    server, store = FakeCluster(), Store()
    cluster = WriteThroughCluster(server, store)
    indexer = store.indexer(CONFIG_MAP, "")
    older = await cluster.apply(config_map("n", data={"x": "1"}), manager="one")
    assert store.get(CONFIG_MAP, Ref("n", "a")) is None, "nothing follows it yet"
    indexer.put(older)
    told: list[object] = []
    indexer.listeners.append(lambda before, after: told.append(after))
    newer = await cluster.apply(config_map("n", data={"x": "2"}), manager="one")
    assert _version(store) == newer["metadata"]["resourceVersion"]
    assert len(told) == 1, "another controller may wait for it"
    indexer.update(older)
    assert _version(store) == newer["metadata"]["resourceVersion"], "the watch limps behind"
    indexer.update(newer)
    assert len(told) == 1
    server.remove(CONFIG_MAP, Ref("n", "a"))
    again = server.put(config_map("n"))
    indexer.put(again)
    store.learn(newer)
    assert _version(store) == again["metadata"]["resourceVersion"], "an answer about another identity"


def test_what_changes_only_where_nobody_reads_wakes_nobody() -> None:
    indexer = Store().indexer(POD, "")
    told: list[object] = []
    indexer.listeners.append(lambda before, after: told.append(after))
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}}
    for version, changed in enumerate(({}, {"podIP": "10.0.0.7"}, {"podIP": "10.0.0.7", "phase": "Failed"})):
        metadata = {"namespace": "n", "name": "a", "uid": "1", "resourceVersion": str(version + 1)}
        indexer.update(pod | {"metadata": metadata, "status": pod["status"] | changed})
        assert indexer.objects[Ref("n", "a")]["metadata"] == metadata, "the present version all the same"
    assert len(told) == 2


def test_the_api_server_is_asked_for_so_much_at_once_and_no_more() -> None:
    server = FakeCluster(delay=lambda: 1.0)
    server.put(config_map("n"))

    async def seconds(requests: int) -> float:
        cluster, began = WriteThroughCluster(server, Store(), MAX_REQUESTS), asyncio.get_running_loop().time()
        await asyncio.gather(*(cluster.get(CONFIG_MAP, Ref("n", "a")) for _ in range(requests)))
        return asyncio.get_running_loop().time() - began

    one = virtual.run(seconds(1))
    assert virtual.run(seconds(MAX_REQUESTS)) == one
    assert virtual.run(seconds(MAX_REQUESTS + 1)) == 2 * one


@pytest.mark.parametrize(
    ("labels", "deleted", "there"), [("", False, True), ("", True, False), ("a=b", False, False)]
)
async def test_what_was_made_is_seen_at_once_if_the_watch_has_yet_to_bring_it(
    labels: str, deleted: bool, there: bool
) -> None:
    server, store = FakeCluster(), Store()
    indexer = store.indexer(CONFIG_MAP, labels)
    server.put(config_map("n", "other"))
    indexer.version = int((await server.list(CONFIG_MAP)).resource_version)
    made = await server.apply(config_map("n"), manager="one")
    if deleted:
        server.remove(CONFIG_MAP, Ref("n", "a"))
        indexer.version = int((await server.list(CONFIG_MAP)).resource_version)
    store.learn(made)
    assert (store.get(CONFIG_MAP, Ref("n", "a")) is not None) == there


async def test_what_was_made_while_a_list_was_on_its_way_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    server, store = FakeCluster(), Store()
    server.put(config_map("n", "other"))
    reflector = Reflector(server, CONFIG_MAP, "", store.indexer(CONFIG_MAP, ""))
    await reflector._list()
    older = await server.list(CONFIG_MAP)
    store.learn(await server.apply(config_map("n"), manager="one"))
    monkeypatch.setattr(server, "list", AsyncMock(return_value=older))
    await reflector._list()
    assert store.get(CONFIG_MAP, Ref("n", "a")) is not None


def _version(store: Store) -> str:
    found = store.get(CONFIG_MAP, Ref("n", "a"))
    assert found is not None
    return str(found["metadata"]["resourceVersion"])


@pytest.mark.parametrize("error", [ClusterUnavailable, Conflict])
async def test_what_failed_is_not_learnt(error: type[ClusterError]) -> None:
    server, store = FakeCluster(), Store()
    store.indexer(CONFIG_MAP, "").put(server.put(config_map("n")))
    server.faults = lambda verb, kind: error("no")
    with pytest.raises(error):
        await WriteThroughCluster(server, store).apply(config_map("n", data={"x": "1"}), manager="one")
    found = store.get(CONFIG_MAP, Ref("n", "a"))
    assert found is not None
    assert "data" not in found
