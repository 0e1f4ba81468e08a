"""One value says what an agent's observation amounts to; nothing else is read to decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedsilo.api.conditions import AgentPhase
from fedsilo_operator.objects import SILO_KIND
from fedsilo_operator.silo.assess import assess
from fedsilo_operator.silo.observe import observe
from fedsilo_operator.silo.state import AgentState
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.harness import (
    AGENT_REF,
    SETTINGS,
    SILO_REF,
    World,
    agent,
    silo,
    started_world,
    world,
)

RUN, STOP = {TRAINER: True, GUARD: True}, {TRAINER: False, GUARD: False}
KEEP: dict[str, bool] = {}


def assessed_state(scene: World) -> AgentState:
    seen = observe(scene, AGENT_REF)
    assert seen is not None
    return assess(replace(seen, events=tuple(scene.kubernetes_events)), scene.now, SETTINGS)


def refused_world() -> World:
    scene = started_world()
    scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]["methods"] = ["creff"]
    return scene


def unreadable_world() -> World:
    scene = started_world()
    scene.agent["spec"]["telepathy"] = True
    return scene


def suspended_world() -> World:
    scene = started_world()
    scene.suspend(True)
    return scene


def with_end(component: str, condition: str) -> Callable[[], World]:
    def scene() -> World:
        found = started_world()
        found.end(component, condition, reason="BackoffLimitExceeded", message="no more")
        return found

    return scene


@pytest.mark.parametrize(
    ("scene", "phase", "run", "makes_children"),
    [
        (lambda: World(agent()), AgentPhase.PENDING, STOP, False),
        (lambda: World(agent(), silo({"methods": ["creff"]})), AgentPhase.REFUSED, STOP, False),
        (lambda: World(agent(), silo({"manualApproval": True})), AgentPhase.APPROVAL_PENDING, STOP, False),
        (lambda: world(suspend=True), AgentPhase.ADMITTED, STOP, False),
        (world, AgentPhase.STARTING, RUN, True),
        (started_world, AgentPhase.RUNNING, RUN, True),
        (refused_world, AgentPhase.REFUSED, STOP, False),
        (unreadable_world, AgentPhase.RUNNING, KEEP, False),
        (suspended_world, AgentPhase.SUSPENDED, STOP, False),
        (with_end(TRAINER, "Complete"), AgentPhase.RUNNING, RUN, True),
        (with_end(TRAINER, "Failed"), AgentPhase.FAILED, {TRAINER: False, GUARD: True}, False),
        (with_end(GUARD, "Failed"), AgentPhase.FAILED, {TRAINER: False, GUARD: True}, False),
    ],
)
def test_an_observation_is_one_value(
    scene: Callable[[], World], phase: AgentPhase, run: dict[str, bool], makes_children: bool
) -> None:
    state = assessed_state(scene())
    assert state.found.phase == phase
    assert state.found.run == run
    assert (state.children_from is not None) == makes_children


def test_a_recorded_end_is_not_decided_about_again() -> None:
    scene = started_world()
    scene.end(TRAINER, "Failed", reason="BackoffLimitExceeded", message="no more")
    scene.reconcile()
    before = assessed_state(scene).found
    scene.objects[SILO_KIND] = {}
    after = assessed_state(scene).found
    assert (after.phase, after.message, after.outcome) == (before.phase, before.message, before.outcome)
    assert after.conditions == before.conditions


def test_the_blocked_component_has_the_diagnosis() -> None:
    scene = world()
    scene.reconcile()
    waiting = {"ready": False, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    scene.pod(GUARD, phase="Pending", containerStatuses=[waiting])
    scene.pass_time(30)
    state = assessed_state(scene)
    assert state.trainer.diagnosis is None
    assert state.guard.diagnosis is not None
    ready = state.found.conditions[1]
    assert (ready.reason, ready.message) == (state.guard.diagnosis.reason, state.guard.diagnosis.message)
    assert state.requeue_after == 30
