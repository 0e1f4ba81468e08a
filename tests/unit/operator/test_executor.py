"""A plan is carried out in its order, and a status never says what was not done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.cluster.interface import (
    CallRefused,
    Cluster,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    Event,
    FieldConflict,
    NotFound,
)
from fedsilo_operator.objects import CONFIG_MAP, EVENT, SECRET, SERVICE, SILO_KIND, Kind, Ref, ref_of
from fedsilo_operator.plan import Action, ApplyAction, CreateAction, DeleteAction, Plan
from fedsilo_operator.rejections import Rejection
from fedsilo_operator.runtime import executor
from fedsilo_operator.runtime.actions import MAX_CONCURRENT_WRITES
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from tests.contract_objects import config_map, service, silo
from tests.operator_fakes import virtual
from tests.operator_fakes.cluster import FakeCluster

SECRET_OBJECT = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "n", "name": "s"}}


async def carry_out(plan: Plan, about: Object, cluster: Cluster) -> None:
    """A plan that takes no notice of what was refused."""
    await executor.carry_out(lambda _refused: plan, about, cluster)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def event_subject(cluster: FakeCluster) -> Object:
    return cluster.put(service("n"))


def full_plan(cluster: FakeCluster, about: Object) -> Plan:
    old = cluster.put(config_map("n", "old"))
    return Plan(
        actions=(
            ApplyAction(config_map("n", "new", data={"x": "1"}), manager="another"),
            CreateAction(SECRET_OBJECT),
            DeleteAction(CONFIG_MAP, Ref("n", "old"), uid_of(old)),
        ),
        events=(Event(about, "Normal", "Running", "round 1"),),
        status={"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    )


async def test_all_is_done_in_order(cluster: FakeCluster, event_subject: Object) -> None:
    asked: list[tuple[str, Kind]] = []

    def note(verb: str, kind: Kind) -> None:
        if (verb, kind) not in asked and verb != "get":
            asked.append((verb, kind))

    cluster.faults = note
    await carry_out(full_plan(cluster, event_subject), event_subject, cluster)
    assert asked == [
        ("apply", CONFIG_MAP),
        ("create", SECRET),
        ("delete", CONFIG_MAP),
        ("apply", SERVICE),
        ("event", EVENT),
    ]
    (made,) = cluster.objects(CONFIG_MAP)
    assert made["metadata"]["managedFields"][0]["manager"] == "another"
    written = cluster.peek(SERVICE, Ref("n", "s"))
    assert written["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4"}]
    assert written["spec"] == event_subject["spec"]


async def test_a_settled_plan_asks_nothing(cluster: FakeCluster, event_subject: Object) -> None:
    cluster.faults = lambda verb, kind: pytest.fail(f"{verb} {kind}")
    await carry_out(Plan(requeue_after=60), event_subject, cluster)


async def test_what_was_made_already_is_no_error(cluster: FakeCluster, event_subject: Object) -> None:
    cluster.put(SECRET_OBJECT)
    await carry_out(Plan(actions=(CreateAction(SECRET_OBJECT),)), event_subject, cluster)


@pytest.mark.parametrize("error", [Conflict, ClusterUnavailable])
@pytest.mark.parametrize(("verb", "kind"), [("apply", CONFIG_MAP), ("delete", CONFIG_MAP)])
async def test_after_a_failure_nothing_more_is_written(
    cluster: FakeCluster, event_subject: Object, error: type[ClusterError], verb: str, kind: Kind
) -> None:
    plan = full_plan(cluster, event_subject)
    cluster.faults = lambda *asked: error("no") if asked == (verb, kind) else None
    with pytest.raises(error):
        await carry_out(plan, event_subject, cluster)
    assert not cluster.objects(EVENT)
    assert "status" not in cluster.peek(SERVICE, Ref("n", "s"))


def refusing(cluster: FakeCluster, name: str, error: ClusterError | None = None) -> None:
    cluster.refuses = lambda obj: (error or CallRefused("quota")) if obj["metadata"]["name"] == name else None


async def test_what_is_refused_ends_all_that_needs_it_and_is_reported(
    cluster: FakeCluster, event_subject: Object
) -> None:
    refusing(cluster, "a")
    seen: list[tuple[Rejection, ...]] = []

    def decide(rejections: tuple[Rejection, ...]) -> Plan:
        seen.append(rejections)
        actions = (ApplyAction(config_map("n", "a")), ApplyAction(config_map("n", "b")))
        return Plan(actions, status={"said": [found.diagnosis.message for found in rejections]})

    with pytest.raises(CallRefused, match="refuses ConfigMap n/a: quota"):
        await executor.carry_out(decide, event_subject, cluster)
    assert not cluster.objects(CONFIG_MAP), "no failure group: what comes after it needs it"
    assert [
        [(found.kind, found.ref, found.diagnosis.reason) for found in rejections] for rejections in seen
    ] == [
        [],
        [(CONFIG_MAP, Ref("n", "a"), "ApiRefused")],
    ]
    (said,) = cluster.peek(SERVICE, Ref("n", "s"))["status"]["said"]
    assert "The API server refuses ConfigMap n/a: quota. Change what it names" in said


@pytest.mark.parametrize(
    "error", [CallRefused("no"), FieldConflict("a field is another's"), NotFound("namespace")]
)
async def test_a_rejection_ends_its_failure_group_and_no_other(
    cluster: FakeCluster, event_subject: Object, error: ClusterError
) -> None:
    refusing(cluster, "a", error)
    made = [("a", "one"), ("b", "one"), ("c", "two"), ("d", ""), ("e", "one")]
    actions = tuple(
        ApplyAction(config_map("n", name), failure_group=failure_group) for name, failure_group in made
    )
    with pytest.raises(CallRefused):
        await carry_out(Plan(actions), event_subject, cluster)
    assert [ref_of(obj).name for obj in cluster.objects(CONFIG_MAP)] == ["c", "d"]


async def test_an_object_of_somebody_else_is_neither_changed_nor_taken(
    cluster: FakeCluster, event_subject: Object
) -> None:
    theirs = cluster.put(config_map("n", "a", data={"x": "theirs"}))
    mine = config_map("n", "a", labels={"l": "v"})
    mine["metadata"]["ownerReferences"] = [
        {"kind": "Service", "name": "s", "uid": uid_of(event_subject), "controller": True}
    ]
    with pytest.raises(CallRefused, match="ConfigMap n/a is there already"):
        await carry_out(Plan((ApplyAction(mine),)), event_subject, cluster)
    assert cluster.peek(CONFIG_MAP, Ref("n", "a")) == theirs


async def test_an_object_of_an_earlier_owner_is_waited_for(
    cluster: FakeCluster, event_subject: Object
) -> None:
    owner = {"kind": "Service", "name": "s", "controller": True}
    earlier, mine = config_map("n", "a"), config_map("n", "a")
    earlier["metadata"]["ownerReferences"] = [owner | {"uid": "gone"}]
    mine["metadata"]["ownerReferences"] = [owner | {"uid": uid_of(event_subject)}]
    cluster.put(earlier)
    with pytest.raises(Conflict):
        await carry_out(Plan((ApplyAction(mine),)), event_subject, cluster)
    cluster.collect_garbage()
    await carry_out(Plan((ApplyAction(mine),)), event_subject, cluster)
    await carry_out(
        Plan((ApplyAction(mine),)), event_subject, cluster
    )  # a cache that is behind makes it ours no less


def owned_config_map(name: str, owner: Object) -> Object:
    made = config_map("n", name)
    made["metadata"]["ownerReferences"] = [
        {"kind": owner["kind"], "name": ref_of(owner).name, "uid": uid_of(owner), "controller": True}
    ]
    return made


async def test_a_name_is_looked_at_only_where_it_is_taken(
    cluster: FakeCluster, event_subject: Object
) -> None:
    asked: list[str] = []
    cluster.faults = lambda verb, kind: asked.append(verb) if kind == CONFIG_MAP else None
    plan = Plan((CreateAction(owned_config_map("a", event_subject)),))
    await carry_out(plan, event_subject, cluster)
    assert set(asked) == {"create"}
    await carry_out(plan, event_subject, cluster)  # a cache that is behind
    assert asked[-1] == "get"
    (made,) = cluster.objects(CONFIG_MAP)
    cluster.put(made | {"metadata": {"namespace": "n", "name": "b"}})
    with pytest.raises(CallRefused, match="ConfigMap n/b is there already"):
        await carry_out(Plan((CreateAction(owned_config_map("b", event_subject)),)), event_subject, cluster)
    earlier = owned_config_map("c", event_subject)
    earlier["metadata"]["ownerReferences"][0]["uid"] = "gone"
    cluster.put(earlier)
    with pytest.raises(Conflict, match="of an earlier owner"):
        await carry_out(Plan((CreateAction(owned_config_map("c", event_subject)),)), event_subject, cluster)


def test_what_does_not_depend_on_each_other_is_done_at_the_same_time() -> None:
    async def seconds(*actions: Action) -> float:
        cluster = FakeCluster()
        about = cluster.put(service("n"))
        cluster.delay = lambda: 0.5
        began = asyncio.get_running_loop().time()
        await carry_out(Plan(actions), about, cluster)
        assert len(cluster.objects(CONFIG_MAP)) == len(actions)
        return asyncio.get_running_loop().time() - began

    def grouped_actions(kind: type[ApplyAction] | type[CreateAction], groups: str) -> list[Action]:
        return [kind(config_map("n", f"m{at}"), failure_group=name.strip()) for at, name in enumerate(groups)]

    apply_seconds, create_seconds = 1.5, 1.0  # a look at the name, which is free, and the write
    assert virtual.run(seconds(*grouped_actions(ApplyAction, "abcdefgh"))) == apply_seconds
    assert virtual.run(seconds(*grouped_actions(ApplyAction, "aabb"))) == 2 * apply_seconds
    assert virtual.run(seconds(*grouped_actions(ApplyAction, "  "))) == 2 * apply_seconds
    assert virtual.run(seconds(*grouped_actions(CreateAction, "aaaa"))) == create_seconds
    assert (
        virtual.run(seconds(*grouped_actions(CreateAction, "a" * (MAX_CONCURRENT_WRITES + 1))))
        == 2 * create_seconds
    )


async def test_after_a_failure_nothing_more_is_begun_in_other_groups_either(
    cluster: FakeCluster, event_subject: Object
) -> None:
    tried: list[Kind] = []

    def fail(verb: str, kind: Kind) -> ClusterError | None:
        if verb == "apply":
            tried.append(kind)
        return ClusterUnavailable("500") if verb == "apply" else None

    cluster.faults = fail
    names = [f"m{number}" for number in range(100)]
    with pytest.raises(ClusterUnavailable):
        await carry_out(
            Plan(tuple(ApplyAction(config_map("n", name), failure_group=name) for name in names)),
            event_subject,
            cluster,
        )
    assert 0 < len(tried) <= MAX_CONCURRENT_WRITES


async def test_an_event_never_fails_a_reconcile(
    cluster: FakeCluster, event_subject: Object, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.faults = lambda verb, kind: CallRefused("quota") if kind == EVENT else None
    await carry_out(full_plan(cluster, event_subject), event_subject, cluster)
    assert "status" in cluster.peek(SERVICE, Ref("n", "s"))
    assert "Service n/s: no event Running: quota" in caplog.text


async def test_a_status_that_was_not_written_is_no_event(cluster: FakeCluster, event_subject: Object) -> None:
    cluster.faults = lambda verb, kind: ClusterUnavailable("500") if kind == SERVICE else None
    with pytest.raises(ClusterUnavailable):
        await carry_out(full_plan(cluster, event_subject), event_subject, cluster)
    assert not cluster.objects(EVENT)


READY_PLAN = Plan(status={"publicKey": "k"})


async def test_a_status_goes_to_the_identity_that_was_seen(cluster: FakeCluster) -> None:
    earlier = cluster.put(silo("n"))
    cluster.remove(SILO_KIND, ref_of(earlier))
    with pytest.raises(NotFound):
        await carry_out(READY_PLAN, earlier, cluster)
    cluster.put(silo("n"))
    with pytest.raises(Conflict):
        await carry_out(READY_PLAN, earlier, cluster)
    assert "status" not in cluster.peek(SILO_KIND, ref_of(earlier))


async def test_what_the_plan_itself_changes_is_no_conflict(cluster: FakeCluster) -> None:
    about = cluster.put(silo("n"))
    held = silo("n") | {"metadata": about["metadata"] | {"finalizers": ["fedsilo.io/x"]}}
    for name in ("resourceVersion", "creationTimestamp", "generation", "managedFields"):
        held["metadata"].pop(name)
    held.pop("spec")
    await carry_out(
        Plan((ApplyAction(held), ApplyAction(config_map("n"))), status=READY_PLAN.status), about, cluster
    )
    written = cluster.peek(SILO_KIND, ref_of(about))
    assert written["metadata"]["finalizers"] == ["fedsilo.io/x"]
    assert written["status"] == READY_PLAN.status


class Publisher:
    """Publishes a key in the status of each silo, with a slow write before."""

    name = "publisher"

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self.cluster, self.store, self.tries = cluster, store, 0

    def watches(self) -> Sequence[Watch]:
        return [Watch(SILO_KIND, "", lambda obj: [Key(SILO_KIND, ref_of(obj))])]

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(SILO_KIND, key.ref)
        if found is None or "publicKey" in found["status"]:
            return None
        self.tries += 1
        await carry_out(Plan((ApplyAction(config_map("n")),), status=READY_PLAN.status), found, self.cluster)
        return None


@pytest.mark.parametrize("seed", range(50))
def test_another_writer_of_the_status_delays_nobody(seed: int) -> None:
    random = Random(seed)
    cluster = FakeCluster(delay=lambda: random.random() * 0.3)

    async def written_after() -> float:
        loop, store = asyncio.get_running_loop(), Store()
        publisher = Publisher(WriteThroughCluster(cluster, store), store)
        operating = asyncio.ensure_future(Operator(cluster, store, [publisher]).run())
        for number in range(100):
            cluster.put(silo("n") | {"status": {"report": number}}, "reporter")
            await asyncio.sleep(1)
            if "publicKey" in cluster.peek(SILO_KIND, ref_of(silo("n")))["status"]:
                break
        operating.cancel()
        await asyncio.wait([operating])
        assert publisher.tries <= loop.time() + 2, "a conflict is not tried again before there is news"
        return loop.time()

    assert virtual.run(written_after()) <= 10
