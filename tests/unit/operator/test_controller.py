"""The loop that reconciles: what wakes it, what it does about errors, and when the process must end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import (
    CallRefused,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    NotFound,
    VersionExpired,
)
from fedsilo_operator.objects import CONFIG_MAP, EVENT, LEASE, SECRET, Ref, labels_of, ref_of
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.election import Election
from fedsilo_operator.runtime.operator import WORKERS, Operator
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.runtime.store import Store
from tests.contract_objects import config_map
from tests.operator_fakes import virtual
from tests.operator_fakes.cluster import FakeCluster

OUR_KEY = Key(CONFIG_MAP, Ref("n", "a"))

Patience = Callable[[Object | None, Object | None], float]


def secret(name: str, owner: str) -> Object:
    metadata = {"namespace": "n", "name": name, "labels": {"owner": owner}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


class Script:
    """A reconciler that does what a test says, and notes when it was asked."""

    name = "script"

    def __init__(
        self, store: Store, *outcomes: float | Exception | None, patience: Patience | None = None
    ) -> None:
        self.store = store
        self.patience = patience
        self.outcomes = list(outcomes)
        self.asked: list[tuple[float, Key]] = []
        self.seconds = 0.0
        self.at_work: list[Key] = []

    def watches(self) -> Sequence[Watch]:
        return [
            Watch(CONFIG_MAP, "", lambda obj: [Key(CONFIG_MAP, ref_of(obj))]),
            Watch(SECRET, "owner", self.owner, self.patience),
        ]

    def owner(self, obj: Object) -> Iterable[Key]:
        return [Key(CONFIG_MAP, Ref("n", labels_of(obj)["owner"]))]

    async def reconcile(self, key: Key) -> float | None:
        assert key not in self.at_work, "one worker per key"
        self.asked.append((asyncio.get_running_loop().time(), key))
        self.at_work.append(key)
        await asyncio.sleep(self.seconds)
        self.at_work.remove(key)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def times(self, key: Key = OUR_KEY) -> list[float]:
        return [time for time, asked in self.asked if asked == key]


def operating(
    body: Callable[[FakeCluster, Script], Awaitable[None]],
    *outcomes: float | Exception | None,
    patience: Patience | None = None,
) -> FakeCluster:
    """Run a body beside an operator with one scripted controller, in virtual time."""
    cluster = FakeCluster()
    cluster.put(config_map("n"))

    async def run() -> None:
        store = Store()
        script = Script(store, *outcomes, patience=patience)
        running = asyncio.ensure_future(Operator(cluster, store, [script]).run())
        try:
            await body(cluster, script)
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.wait([running])

    virtual.run(run())
    return cluster


def test_every_object_is_looked_at_once_at_the_start() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1000)
        assert script.asked == [(0, OUR_KEY)]
        assert script.store.get(CONFIG_MAP, OUR_KEY.ref) is not None

    operating(body)


def test_a_change_of_a_child_wakes_its_owner_and_the_one_before() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1)
        cluster.put(secret("s", "a"))
        await asyncio.sleep(1)
        assert len(script.times()) == 2
        cluster.put(secret("s", "b"))
        await asyncio.sleep(1)
        assert len(script.times()) == 3
        assert len(script.times(Key(CONFIG_MAP, Ref("n", "b")))) == 1
        cluster.remove(SECRET, Ref("n", "s"))
        await asyncio.sleep(1)
        assert len(script.times(Key(CONFIG_MAP, Ref("n", "b")))) == 2

    operating(body)


def test_changes_that_may_wait_for_each_other_are_looked_at_together() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1)
        for second in range(3):
            cluster.put(secret(f"s{second}", "a"))
            await asyncio.sleep(0.5)
        assert script.times() == [0]
        await asyncio.sleep(100)
        assert script.times() == [0, 3], "two seconds after the first of them"
        cluster.put(secret("s3", "a"))
        cluster.put(config_map("n", "a", data={"x": "1"}))
        await asyncio.sleep(100)
        assert len(script.times()) == 3, "what does not wait takes along what does"

    operating(body, patience=lambda _before, _after: 2.0)


def test_an_appointment_is_kept() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1000)
        assert script.times() == [0, 60, 90]

    operating(body, 60.0, 30.0)


@pytest.mark.parametrize("error", [Conflict, NotFound, ClusterUnavailable, VersionExpired])
def test_what_may_mend_itself_is_tried_again_soon(error: type[ClusterError]) -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1000)
        first, second, third, fourth = script.times()
        assert 0.8 <= second - first <= 1.2
        assert 1.6 <= third - second <= 2.4
        assert 3.2 <= fourth - third <= 4.8

    assert not operating(body, error("1"), error("2"), error("3")).objects(EVENT)


def test_what_goes_on_failing_is_reported_once() -> None:
    """A field that another manager holds, a namespace that is gone: nothing waits in silence."""
    stuck = 'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .spec.ports'

    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1000)
        assert len(script.times()) == 9

    (event,) = operating(body, *(Conflict(stuck) for _ in range(8))).objects(EVENT)
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "ApiRefused", stuck)


def test_success_makes_the_next_failure_the_first() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(1000)
        times = script.times()
        assert times[4] - times[3] <= 1.2

    operating(body, Conflict("1"), Conflict("2"), 100.0, Conflict("3"))


def test_what_is_refused_is_reported_once_and_tried_again_late() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        await asyncio.sleep(500)
        times = script.times()
        assert len(times) == 4
        assert all(later - earlier >= 48 for earlier, later in itertools.pairwise(times))

    cluster = operating(
        body, CallRefused("spec is wrong"), CallRefused("spec is wrong"), CallRefused("still wrong")
    )
    said = [
        (event["type"], event["reason"], event["message"], event["count"]) for event in cluster.objects(EVENT)
    ]
    assert sorted(said) == [
        ("Warning", "ApiRefused", "spec is wrong", 1),
        ("Warning", "ApiRefused", "still wrong", 1),
    ]


def test_a_defect_is_logged_with_its_key_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        cluster.put(config_map("n", "other"))
        await asyncio.sleep(1000)
        assert len(script.times()) == 2
        assert len(script.times(Key(CONFIG_MAP, Ref("n", "other")))) == 1

    operating(body, KeyError("spec"))
    (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert "ConfigMap n/a" in record.getMessage()
    assert record.exc_info


def test_an_object_that_nobody_thought_of_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        script.owner = lambda obj: [][1]  # type: ignore[method-assign]
        await asyncio.sleep(1)
        cluster.put(config_map("n"), "other")
        cluster.put(config_map("n", data={"x": "1"}))
        await asyncio.sleep(1)
        assert len(script.times()) == 2

    operating(body)


def test_workers_share_keys_and_never_one_key() -> None:
    async def body(cluster: FakeCluster, script: Script) -> None:
        script.seconds = 10
        for number in range(2 * WORKERS):
            cluster.put(config_map("n", f"c{number}"))
        await asyncio.sleep(1)
        assert len(script.at_work) == WORKERS
        for number in range(20):
            cluster.put(config_map("n", data={"x": str(number)}))
            await asyncio.sleep(1)
        await asyncio.sleep(100)
        assert len(script.times()) <= 5, "many changes are one reconcile"
        assert {str(key.ref) for _, key in script.asked} >= {f"n/c{number}" for number in range(2 * WORKERS)}

    operating(body)


def test_a_dead_task_ends_the_operator() -> None:
    cluster = FakeCluster()

    def fail_on_secrets(verb: str, kind: object) -> None:
        if verb == "watch" and kind == SECRET:
            raise ZeroDivisionError

    async def run() -> None:
        store = Store()
        cluster.faults = fail_on_secrets
        async with asyncio.timeout(10):
            await Operator(cluster, store, [Script(store)]).run()

    with pytest.raises(ZeroDivisionError):
        virtual.run(run())


def test_two_controllers_share_what_they_watch() -> None:
    cluster = FakeCluster()
    lists: list[object] = []

    def count(verb: str, kind: object) -> None:
        if verb == "list":
            lists.append(kind)

    async def run() -> None:
        cluster.put(config_map("n"))
        cluster.faults = count
        store = Store()
        scripts = [Script(store), Script(store)]
        running = asyncio.ensure_future(Operator(cluster, store, scripts).run())
        await asyncio.sleep(1)
        running.cancel()
        assert [script.times() for script in scripts] == [[0], [0]]
        assert sorted(map(str, lists)) == ["ConfigMap", "Secret"]

    virtual.run(run())


def test_a_standby_watches_and_does_nothing_until_it_leads() -> None:
    cluster = FakeCluster()
    cluster.put(config_map("n"))
    lease = Ref("n", "lease")

    async def run() -> None:
        started = []
        for identity in ("one", "two"):
            store = Store()
            script = Script(store)
            operator = Operator(cluster, store, [script], Election(cluster, lease, identity))
            assert operator.unsynced_kinds == ["configmaps", "secrets"]
            started.append((asyncio.ensure_future(operator.run()), script, operator))
            await asyncio.sleep(5)
        (first, one, _), (second, two, standby) = started
        assert (len(one.asked), len(two.asked)) == (1, 0)
        assert standby.unsynced_kinds == []
        assert two.store.get(CONFIG_MAP, OUR_KEY.ref) is not None

        before = asyncio.get_running_loop().time()
        first.cancel()
        await asyncio.wait([first])
        assert cluster.peek(LEASE, lease)["spec"]["holderIdentity"] == ""
        await asyncio.sleep(5)
        assert len(two.asked) == 1
        assert two.times()[0] - before <= 3, "the lease was given back"
        second.cancel()

    virtual.run(run())
