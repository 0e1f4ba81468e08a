"""Some runs of the model in every run of the suite, and proof that it finds what it is there for."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fedsilo.http import large_body
from tests.protocol.defects import DEFECTS, find_plan
from tests.protocol.plan import METHODS, Crash, Damage, Message, Mishap, Plan, plans
from tests.protocol.specification import run
from tests.tiers import mark_thorough

EXAMPLES = 40

FEW_EXAMPLES = 12
"""Plans in each run of `make test`."""

QUICKLY_FOUND = (
    "private state advances before the acknowledgement",
    "an update is acknowledged before it is durable",
)
"""Defects that `make test` looks for."""

SMOKE = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_in_which_nothing_goes_wrong_holds(method: str) -> None:
    world = run(Plan(method))
    assert world.seconds < 10
    assert [process.error for process in world.processes.values()] == [None] * 5


@settings(SMOKE, max_examples=FEW_EXAMPLES)
@given(plans())
def test_a_few_runs_in_which_things_go_wrong_hold(plan: Plan) -> None:
    run(plan)


@pytest.mark.thorough
@SMOKE
@given(plans())
def test_whatever_networks_machines_and_processes_do(plan: Plan) -> None:
    run(plan)


@pytest.mark.thorough
@SMOKE
@given(plans(damage=True))
def test_whatever_disks_do_besides(plan: Plan) -> None:
    run(plan)


@pytest.mark.thorough
@settings(SMOKE, max_examples=EXAMPLES // 2)
@given(plans())
def test_whatever_they_do_to_bodies_that_pass_aiohttp_by(plan: Plan) -> None:
    """Bodies of this model are small, so the bounds of large bodies are."""
    with (
        mock.patch.object(large_body, "LARGE_BYTES", 64),
        mock.patch.object(large_body, "MIN_BUFFER_BYTES", 100),
        mock.patch.object(large_body, "MAX_BUFFER_BYTES", 100),
    ):
        run(plan)


@pytest.mark.parametrize("name", mark_thorough(DEFECTS, QUICKLY_FOUND))
def test_a_defect_is_found(name: str) -> None:
    assert find_plan(DEFECTS[name], examples=60) is not None


def test_a_silo_that_misses_its_task_after_a_restart_gets_it_again() -> None:
    """Its accepted update was damaged, and the response that asks for it once more is lost."""
    slow = Message("south", 3, Mishap("response", "late", seconds=60.0))
    damage = Crash("aggregator", 63, damage=Damage("flip", 4, 80))
    world = run(Plan(faults=(slow, damage, Message("north", 9, Mishap("response", "cut")))))
    assert world.network.happened["response cut"] == 1
    assert world.damaged("aggregator", "open/r00001-train/r00001-train-north.update")
    assert [acceptance.task for acceptance in world.seen.accepted].count("r00001-train-north") == 2


def test_the_same_plan_gives_the_same_run() -> None:
    faults = (
        Crash("aggregator", 30, power=True),
        Crash("north guard", 40),
        Message("south", 5, Mishap("request", "cut")),
    )
    stories = [run(Plan("phases", restless=True, faults=faults)).seen.story for _ in range(2)]
    assert stories[0] == stories[1]
