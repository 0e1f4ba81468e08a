"""A plan is carried out in its order, and a status never says what was not done."""

from __future__ import annotations

import pytest

from fedsilo_operator.cluster.interface import ClusterError, Conflict, Event, Refused, Unavailable
from fedsilo_operator.objects import CONFIG_MAP, EVENT, SECRET, SERVICE, Kind, Object, Ref, uid_of
from fedsilo_operator.plan import Apply, Create, Delete, Plan
from fedsilo_operator.runtime.executor import carry_out
from tests.operator_contract import config_map, service
from tests.operator_fakes.cluster import FakeCluster

SECRET_OBJECT = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "n", "name": "s"}}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def about(cluster: FakeCluster) -> Object:
    return cluster.put(service("n"))


def full(cluster: FakeCluster, about: Object) -> Plan:
    old = cluster.put(config_map("n", "old"))
    return Plan(
        actions=(
            Apply(config_map("n", "new", data={"x": "1"}), manager="another"),
            Create(SECRET_OBJECT),
            Delete(CONFIG_MAP, Ref("n", "old"), uid_of(old)),
        ),
        events=(Event(about, "Normal", "Running", "round 1"),),
        status={"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    )


async def test_all_is_done_in_order(cluster: FakeCluster, about: Object) -> None:
    asked: list[tuple[str, Kind]] = []

    def note(verb: str, kind: Kind) -> None:
        if (verb, kind) not in asked:
            asked.append((verb, kind))

    cluster.faults = note
    await carry_out(full(cluster, about), about, cluster)
    assert asked == [
        ("apply", CONFIG_MAP),
        ("create", SECRET),
        ("delete", CONFIG_MAP),
        ("event", EVENT),
        ("apply", SERVICE),
    ]
    (made,) = cluster.objects(CONFIG_MAP)
    assert made["metadata"]["managedFields"][0]["manager"] == "another"
    written = cluster.peek(SERVICE, Ref("n", "s"))
    assert written["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4"}]
    assert written["spec"] == about["spec"]


async def test_a_settled_plan_asks_nothing(cluster: FakeCluster, about: Object) -> None:
    cluster.faults = lambda verb, kind: pytest.fail(f"{verb} {kind}")
    await carry_out(Plan(again=60), about, cluster)


async def test_what_was_made_already_is_no_error(cluster: FakeCluster, about: Object) -> None:
    cluster.put(SECRET_OBJECT)
    await carry_out(Plan(actions=(Create(SECRET_OBJECT),)), about, cluster)


@pytest.mark.parametrize("error", [Conflict, Refused, Unavailable])
@pytest.mark.parametrize(("verb", "kind"), [("apply", CONFIG_MAP), ("delete", CONFIG_MAP)])
async def test_after_a_failure_nothing_more_is_written(
    cluster: FakeCluster, about: Object, error: type[ClusterError], verb: str, kind: Kind
) -> None:
    plan = full(cluster, about)
    cluster.faults = lambda *asked: error("no") if asked == (verb, kind) else None
    with pytest.raises(error):
        await carry_out(plan, about, cluster)
    assert not cluster.objects(EVENT)
    assert "status" not in cluster.peek(SERVICE, Ref("n", "s"))


async def test_an_event_never_fails_a_reconcile(
    cluster: FakeCluster, about: Object, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.faults = lambda verb, kind: Refused("quota") if kind == EVENT else None
    await carry_out(full(cluster, about), about, cluster)
    assert "status" in cluster.peek(SERVICE, Ref("n", "s"))
    assert "Service n/s: no event Running: quota" in caplog.text


async def test_a_status_goes_to_the_identity_that_was_seen(cluster: FakeCluster, about: Object) -> None:
    cluster.remove(SERVICE, Ref("n", "s"))
    cluster.put(service("n"))
    with pytest.raises(Conflict):
        await carry_out(Plan(status={"conditions": []}), about, cluster)
