"""A drain moves one part of a job at a time, and none hangs for ever."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

from fedsilo_operator.objects import FEDERATED_JOB, POD, ref_of
from tests.operator_fakes.disruption import cordon, evict
from tests.operator_fakes.virtual import run
from tests.unit.operator.drained_world import DrainedFederation, budget_refs

SEEDS = range(1, 5)
NODES = ("node-1", "node-2")


def run_drained(
    work: Callable[[DrainedFederation], Coroutine[None, None, None]], seed: int = 1, **spec: object
) -> DrainedFederation:
    """A running job after some work on its nodes."""
    made = DrainedFederation(seed, NODES, **spec)

    async def complete() -> None:
        await made.begin()
        try:
            await work(made)
        finally:
            await made.end()

    run(complete())
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drained_node_loses_one_part_of_a_job_at_a_time(seed: int) -> None:
    async def work(made: DrainedFederation) -> None:
        cordon(made.cluster, "node-3", unschedulable=False)
        made.drain("node-1")
        await made.until_empty("node-1", at_most=150)
        made.drain("node-2")
        await made.until_empty("node-2", at_most=200)

    assert run_drained(work, seed).most_missing == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_that_are_drained_together_lose_one_part_of_a_job_at_a_time(seed: int) -> None:
    async def work(made: DrainedFederation) -> None:
        cordon(made.cluster, "node-3", unschedulable=False)
        made.drain("node-1")
        made.drain("node-2")
        await made.go_on(7)
        await made.restart_operator()
        await made.until_empty("node-1", "node-2", at_most=250)

    assert run_drained(work, seed).most_missing == 1


def test_a_cordoned_node_that_nobody_drains_gives_its_turn_to_the_next() -> None:
    async def work(made: DrainedFederation) -> None:
        cordon(made.cluster, "node-3", unschedulable=False)
        cordon(made.cluster, "node-1")
        await made.go_on(100)
        made.drain("node-2")
        await made.until_empty("node-2", at_most=400)

    assert run_drained(work).most_missing == 1


def test_a_drain_goes_on_when_what_it_has_moved_finds_no_place() -> None:
    async def work(made: DrainedFederation) -> None:
        made.drain("node-1")
        made.drain("node-2")
        await made.go_on(90)
        assert made.most_missing == 1, "the others wait for it"
        await made.until_empty("node-1", "node-2", at_most=260)

    run_drained(work, startDeadline="2m")


def test_what_nobody_drains_is_not_evicted() -> None:
    async def work(made: DrainedFederation) -> None:
        pods = [ref_of(pod) for pod in made.pods()]
        assert len(pods) == 7
        assert not any(evict(made.cluster, ref) for ref in pods)

    run_drained(work)


def test_a_suspended_job_and_one_that_is_over_hold_up_nobody() -> None:
    async def work(made: DrainedFederation) -> None:
        assert len(budget_refs(made.cluster)) == 4
        (job,) = made.cluster.objects(FEDERATED_JOB)
        made.cluster.put(job | {"spec": job["spec"] | {"suspend": True}, "status": None})
        await made.go_on(5)
        assert not budget_refs(made.cluster)
        (job,) = made.cluster.objects(FEDERATED_JOB)
        made.cluster.put(job | {"spec": job["spec"] | {"suspend": False}, "status": None})
        await made.go_on(60)
        assert len(budget_refs(made.cluster)) == 4
        made.world.may_end = True
        await made.go_on(30)
        assert not budget_refs(made.cluster)
        assert not any(pod["status"]["phase"] == "Running" for pod in made.cluster.objects(POD))

    run_drained(work)
