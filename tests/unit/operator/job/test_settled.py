"""A settled job is written no more, in whatever phase it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedsilo_operator.objects import FEDERATED_JOB
from fedsilo_operator.plan import Plan
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import EAST, JOB_REF, NORTH, SOUTH, manifest, silo

LABELS = {"study": "lung"}
SELECTOR = {"selector": {"matchLabels": LABELS}}


def admitting() -> JobHarness:
    harness = JobHarness()
    harness.settle()
    return harness


def refused_harness() -> JobHarness:
    harness = admitting()
    harness.refuse(NORTH)
    return harness


def starting() -> JobHarness:
    return JobHarness().start_job()


def left_out() -> JobHarness:
    silos = [silo(ref, labels=LABELS) for ref in (NORTH, SOUTH, EAST)]
    harness = JobHarness(manifest(silos=SELECTOR, participation={"minSilos": 2}), silos)
    harness.settle()
    harness.refuse(EAST)
    harness.admit(NORTH, SOUTH)
    return harness


def pending_harness() -> JobHarness:
    harness = JobHarness().start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    harness.pod("Pending", waiting={"reason": "ErrImagePull", "message": "manifest unknown"})
    return harness


def suspended_harness() -> JobHarness:
    harness = JobHarness().running()
    harness.change(suspend=True)
    return harness


def complete() -> JobHarness:
    harness = JobHarness(manifest(ttlSecondsAfterFinished=3600)).running()
    harness.pod("Succeeded", terminated={"exitCode": 0})
    harness.end("Complete")
    return harness


def failed_harness() -> JobHarness:
    harness = JobHarness().running()
    harness.fail(NORTH)
    return harness


def terminating() -> JobHarness:
    harness = JobHarness().running()
    for agent in (harness.agent(NORTH), harness.agent(SOUTH)):
        agent["metadata"]["finalizers"] = ["foregroundDeletion"]
        harness.cluster.put(agent)
    harness.cluster.remove(FEDERATED_JOB, JOB_REF)
    return harness


PHASES: list[tuple[Callable[[], JobHarness], str]] = [
    (lambda: JobHarness(silos=[silo(NORTH)]), "Pending"),
    (admitting, "Admitting"),
    (refused_harness, "Admitting"),
    (starting, "Starting"),
    (left_out, "Starting"),
    (pending_harness, "Starting"),
    (lambda: JobHarness().running(), "Running"),
    (suspended_harness, "Suspended"),
    (complete, "Complete"),
    (failed_harness, "Failed"),
    (lambda: JobHarness(manifest(training={"rounds": 0})), "Failed"),
    (terminating, "Terminating"),
]


@pytest.mark.parametrize(("make", "phase"), PHASES)
def test_the_second_reconcile_plans_nothing(make: Callable[[], JobHarness], phase: str) -> None:
    harness = make()
    harness.settle()
    assert harness.phase() == phase
    writes = len(harness.cluster.writes)
    for _ in range(3):
        plan = harness.step()
        assert plan.settled
        assert Plan(requeue_after=plan.requeue_after) == plan
    assert len(harness.cluster.writes) == writes


@pytest.mark.parametrize(("make", "phase"), PHASES)
def test_a_person_s_notes_and_an_aggregator_s_fields_change_nothing(
    make: Callable[[], JobHarness], phase: str
) -> None:
    harness = make()
    harness.settle()
    job = harness.job
    entry = {"state": "Reported", "lastRound": 3, "samples": 100}
    silos = [item | entry for item in job["status"].get("silos", ())]
    report = {"round": 3, "progress": "3/3", "metrics": {"accuracy": 0.9}} | (
        {"silos": silos} if silos else {}
    )
    job["metadata"]["annotations"] = {"note": "x"}
    harness.cluster.put(job | {"status": job["status"] | report}, "fedsilo-aggregator")
    assert harness.plan().settled
