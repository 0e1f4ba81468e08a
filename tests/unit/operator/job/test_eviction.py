"""Which part of a job may be evicted, and what its budget says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.interface import CallRefused
from fedsilo_operator.job.eviction import OPENED_TIME, TURN, EvictionUnit, budget_actions, evictable_unit
from fedsilo_operator.objects import DISRUPTION_BUDGET, Ref, ref_of
from fedsilo_operator.plan import ApplyAction, DeleteAction
from tests.operator_fakes.disruption import cordon
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import NORTH, SOUTH, START

PATIENCE = timedelta(minutes=10)
LONG_AGO = START - timedelta(days=1)
OWNER: Object = {"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "namespace": "n", "uid": "u"}}


def budget(pods: int, opened: datetime = LONG_AGO, **status: Any) -> Object:
    """The budget of a part, as the disruption controller has counted it."""
    controller = {"uid": "u", "kind": "A", "name": "a", "controller": True}
    return {
        "apiVersion": DISRUPTION_BUDGET.api,
        "kind": DISRUPTION_BUDGET.name,
        "metadata": {
            "name": "a",
            "namespace": "n",
            "uid": "b",
            "generation": 2,
            "ownerReferences": [controller],
            "annotations": {OPENED_TIME: timestamp(opened)},
        },
        "spec": {"minAvailable": pods},
        "status": {"observedGeneration": 2} | status,
    }


def unit(name: str, **found: Any) -> EvictionUnit:
    made = EvictionUnit(Ref("n", name), OWNER, {}, {"app": name}, pods=2, budget=budget(2))
    return replace(made, **found)


OPEN = budget(0)


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ({}, {}, None),
        ({"drained": True}, {}, "a"),
        ({"drained": True}, {"drained": True}, "a"),
        ({"drained": True, "budget": budget(2, START)}, {"drained": True}, "b"),
        ({"drained": True, "budget": OPEN}, {"drained": True}, None),
        ({"drained": True, "budget": OPEN}, {}, "a"),
        ({"drained": True, "budget": budget(0, START)}, {"drained": True}, "a"),
        ({"drained": True, "budget": budget(0, START - TURN), "leaving": True}, {"drained": True}, "a"),
        ({"budget": OPEN}, {"drained": True}, None),
        ({"budget": budget(2, observedGeneration=1)}, {"drained": True}, None),
        ({"budget": budget(2, disruptedPods={"p": "t"})}, {"drained": True}, None),
        ({"leaving": True}, {"drained": True}, None),
        ({"missing_since": START}, {"drained": True}, None),
        ({"missing_since": START - PATIENCE}, {"drained": True}, "b"),
        ({"budget": None}, {"drained": True}, "b"),
    ],
)
def test_at_most_one_part_may_be_evicted(
    first: dict[str, Any], second: dict[str, Any], chosen: str | None
) -> None:
    found = evictable_unit([unit("a", **first), unit("b", **second)], START, PATIENCE)
    assert (None if found is None else found.ref.name) == chosen


def test_a_budget_is_written_where_it_changes_and_goes_with_its_part() -> None:
    made = unit("a", drained=True)
    (action,) = budget_actions([made], [], START, PATIENCE)
    assert isinstance(action, ApplyAction)
    assert action.object["spec"]["minAvailable"] == 0
    assert action.object["metadata"]["annotations"] == {OPENED_TIME: timestamp(START)}
    selected = {"selector": {"matchLabels": {"app": "a"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    closed = budget(2)
    closed["spec"] |= selected
    closed["metadata"]["labels"] = {}
    closed["metadata"]["ownerReferences"] = action.object["metadata"]["ownerReferences"]
    assert not list(budget_actions([replace(made, drained=False, budget=closed)], [closed], START, PATIENCE))
    (action,) = budget_actions([], [closed], START, PATIENCE)
    assert isinstance(action, DeleteAction)


def test_what_an_earlier_agent_of_the_name_has_left_is_deleted_first() -> None:
    left = budget(2)
    left["metadata"]["ownerReferences"][0]["uid"] = "another"
    (action,) = budget_actions([unit("a", budget=left)], [left], START, PATIENCE)
    assert isinstance(action, DeleteAction)


def budgets(harness: JobHarness) -> dict[str, int]:
    """Pods that have to stay, by the budgets' namespaces."""
    found = harness.cluster.objects(DISRUPTION_BUDGET)
    return {ref_of(one).namespace: one["spec"]["minAvailable"] for one in found}


def test_a_job_has_budgets_from_when_its_aggregator_runs_until_it_need_not() -> None:
    harness = JobHarness().start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    assert not budgets(harness)
    harness.pod("Running", running={})
    harness.settle()
    assert budgets(harness) == {"federation": 1, "silo-north": 2, "silo-south": 2}
    harness.fail(NORTH)
    harness.settle()
    assert "silo-north" not in budgets(harness), "its part is over"


def test_an_aggregator_may_go_while_its_node_is_drained_and_all_agents_run() -> None:
    harness = JobHarness().running()
    cordon(harness.cluster, "node-1")
    harness.step()
    assert budgets(harness)["federation"] == 1, "nothing has counted the budgets yet"
    for one in harness.cluster.objects(DISRUPTION_BUDGET):
        harness.cluster.put(one | {"status": {"observedGeneration": one["metadata"]["generation"]}})
    harness.step()
    assert budgets(harness) == {"federation": 0, "silo-north": 2, "silo-south": 2}
    cordon(harness.cluster, "node-1", unschedulable=False)
    harness.settle()
    assert budgets(harness)["federation"] == 1


def test_a_job_runs_where_the_operator_may_make_no_budgets() -> None:
    harness = JobHarness().start_job()
    harness.refuse_writes(CallRefused("may not create"), DISRUPTION_BUDGET, "silo-north")
    harness.run(NORTH, SOUTH)
    harness.settle()
    harness.pod("Running", running={})
    for _ in range(3):
        harness.step()
    assert budgets(harness) == {"federation": 1, "silo-south": 2}
    assert harness.phase() == "Running"
    assert harness.condition("Running") == ("True", "Running", "The aggregator runs.")
