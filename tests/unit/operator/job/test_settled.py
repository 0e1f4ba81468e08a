"""A settled job is written no more, in whatever phase it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedsilo_operator.objects import FEDERATED_JOB
from fedsilo_operator.plan import Plan
from tests.unit.operator.job.scene import EAST, JOB_REF, NORTH, SOUTH, Scene, manifest, silo

LABELS = {"study": "lung"}
SELECTOR = {"selector": {"matchLabels": LABELS}}


def admitting() -> Scene:
    scene = Scene()
    scene.settle()
    return scene


def refused() -> Scene:
    scene = admitting()
    scene.refuse(NORTH)
    return scene


def starting() -> Scene:
    return Scene().started()


def left_out() -> Scene:
    silos = [silo(ref, labels=LABELS) for ref in (NORTH, SOUTH, EAST)]
    scene = Scene(manifest(silos=SELECTOR, participation={"minSilos": 2}), silos)
    scene.settle()
    scene.refuse(EAST)
    scene.admit(NORTH, SOUTH)
    return scene


def pending() -> Scene:
    scene = Scene().started()
    scene.run(NORTH, SOUTH)
    scene.settle()
    scene.pod("Pending", waiting={"reason": "ErrImagePull", "message": "manifest unknown"})
    return scene


def suspended() -> Scene:
    scene = Scene().running()
    scene.change(suspend=True)
    return scene


def complete() -> Scene:
    scene = Scene(manifest(ttlSecondsAfterFinished=3600)).running()
    scene.pod("Succeeded", terminated={"exitCode": 0})
    scene.end("Complete")
    return scene


def failed() -> Scene:
    scene = Scene().running()
    scene.fail(NORTH)
    return scene


def terminating() -> Scene:
    scene = Scene().running()
    for agent in (scene.agent(NORTH), scene.agent(SOUTH)):
        agent["metadata"]["finalizers"] = ["foregroundDeletion"]
        scene.cluster.put(agent)
    scene.cluster.remove(FEDERATED_JOB, JOB_REF)
    return scene


PHASES: list[tuple[Callable[[], Scene], str]] = [
    (lambda: Scene(silos=[silo(NORTH)]), "Pending"),
    (admitting, "Admitting"),
    (refused, "Admitting"),
    (starting, "Starting"),
    (left_out, "Starting"),
    (pending, "Starting"),
    (lambda: Scene().running(), "Running"),
    (suspended, "Suspended"),
    (complete, "Complete"),
    (failed, "Failed"),
    (lambda: Scene(manifest(training={"rounds": 0})), "Failed"),
    (terminating, "Terminating"),
]


@pytest.mark.parametrize(("make", "phase"), PHASES)
def test_the_second_reconcile_plans_nothing(make: Callable[[], Scene], phase: str) -> None:
    scene = make()
    scene.settle()
    assert scene.phase() == phase
    writes = len(scene.cluster.writes)
    for _ in range(3):
        plan = scene.step()
        assert plan.settled
        assert Plan(requeue_after=plan.requeue_after) == plan
    assert len(scene.cluster.writes) == writes


@pytest.mark.parametrize(("make", "phase"), PHASES)
def test_a_person_s_notes_and_an_aggregator_s_fields_change_nothing(
    make: Callable[[], Scene], phase: str
) -> None:
    scene = make()
    scene.settle()
    job = scene.job
    entry = {"state": "Reported", "lastRound": 3, "samples": 100}
    silos = [item | entry for item in job["status"].get("silos", ())]
    report = {"round": 3, "progress": "3/3", "metrics": {"accuracy": 0.9}} | (
        {"silos": silos} if silos else {}
    )
    job["metadata"]["annotations"] = {"note": "x"}
    scene.cluster.put(job | {"status": job["status"] | report}, "fedsilo-aggregator")
    assert scene.plan().settled
