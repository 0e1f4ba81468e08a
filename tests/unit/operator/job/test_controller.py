"""What wakes the job controller, what it asks the cluster itself, and whom it sweeps away."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import ClusterUnavailable
from fedsilo_operator.diagnosis.pods import SUCCESS_SECONDS
from fedsilo_operator.job.controller import PROGRESS_SECONDS, JobController
from fedsilo_operator.objects import (
    FEDERATED_JOB,
    JOB,
    NODE,
    SERVICE,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Ref,
    ref_of,
)
from fedsilo_operator.runtime.queue import Key
from tests.operator_fakes.disruption import cordon
from tests.unit.operator.job.harness import JobHarness, View
from tests.unit.operator.job.objects import EAST, JOB_REF, NORTH, SETTINGS, SOUTH, manifest, silo

KEY = Key(FEDERATED_JOB, JOB_REF)


def controller(harness: JobHarness) -> JobController:
    return JobController(harness.cluster, View(harness.cluster), SETTINGS, lambda: harness.now)


def woken_keys(harness: JobHarness, kind: Kind, obj: Object) -> list[Key]:
    (watch,) = [watch for watch in controller(harness).watches() if watch.kind == kind]
    return list(watch.keys(obj))


def reconcile(harness: JobHarness, key: Key = KEY) -> float | None:
    return asyncio.run(controller(harness).reconcile(key))


def test_a_job_wakes_itself_and_its_children_wake_it() -> None:
    harness = JobHarness().running()
    assert woken_keys(harness, FEDERATED_JOB, harness.job) == [KEY]
    assert woken_keys(harness, JOB, harness.batch()) == [KEY]
    assert woken_keys(harness, SERVICE, harness.cluster.objects(SERVICE)[0]) == [KEY]
    assert woken_keys(harness, SILO_AGENT, harness.agent(NORTH)) == [KEY]
    assert woken_keys(harness, SILO_AGENT, {"metadata": {"name": "x", "namespace": "y"}}) == []


def test_the_step_of_an_agent_waits_for_the_last_one_to_make_it() -> None:
    harness = JobHarness().running()
    (watch,) = [watch for watch in controller(harness).watches() if watch.kind == SILO_AGENT]
    before = harness.agent(NORTH)

    def patience(**change: object) -> float:
        assert watch.patience is not None
        harness.cluster.put(before | {"status": before["status"] | change})
        return watch.patience(before, harness.agent(NORTH))

    assert patience(phase="Running") == 0, "so does the other one"
    assert patience(phase="Starting") == PROGRESS_SECONDS
    assert patience(phase="Failed") == 0, "the quorum may be lost"
    assert watch.patience is not None
    assert watch.patience(before, None) == 0
    assert watch.patience(None, before) == 0
    deleted = before | {"metadata": before["metadata"] | {"deletionTimestamp": "2026-03-01T12:00:00Z"}}
    assert watch.patience(before, deleted) == 0


def test_a_step_towards_success_waits_for_the_last_one() -> None:
    harness = JobHarness().running()
    (watch,) = [watch for watch in controller(harness).watches() if watch.kind == JOB]
    before = harness.batch()

    def patience(*names: str) -> float:
        assert watch.patience is not None
        conditions = [{"type": name, "status": "True"} for name in names]
        return watch.patience(before, before | {"status": {"conditions": conditions}})

    assert patience("SuccessCriteriaMet") == SUCCESS_SECONDS
    assert patience("SuccessCriteriaMet", "Complete") == 0
    assert patience("FailureTarget") == 0
    assert patience() == 0


def test_silos_wake_the_jobs_that_could_mean_them_until_they_are_over() -> None:
    harness = JobHarness()
    assert woken_keys(harness, SILO_KIND, silo(NORTH)) == [KEY]
    assert woken_keys(harness, SILO_KIND, silo(Ref("clinic", "north"))) == [KEY], (
        "for the remedy that names it"
    )
    assert woken_keys(harness, SILO_KIND, silo(EAST)) == []
    harness.running().fail(NORTH)
    assert woken_keys(harness, SILO_KIND, silo(NORTH)) == [KEY]
    harness.settle()
    assert woken_keys(harness, SILO_KIND, silo(NORTH)) == []
    selecting = JobHarness(manifest(silos={"selector": {"matchLabels": {"a": "b"}}}))
    assert woken_keys(selecting, SILO_KIND, silo(EAST)) == [KEY]


def test_every_watch_of_a_child_is_narrow() -> None:
    for watch in controller(JobHarness()).watches():
        if watch.kind not in (FEDERATED_JOB, SILO_KIND, SILO_AGENT, NODE):
            assert "app.kubernetes.io/component" in watch.labels, watch.kind


def test_a_drained_node_wakes_the_jobs_that_have_a_pod_there() -> None:
    harness = JobHarness().running()
    for name in ("node-1", "node-2"):
        cordon(harness.cluster, name, unschedulable=False)
    nodes = harness.cluster.objects(NODE)
    assert [woken_keys(harness, NODE, node) for node in nodes] == [[], []]
    for name in ("node-1", "node-2"):
        cordon(harness.cluster, name)
    nodes = harness.cluster.objects(NODE)
    assert [woken_keys(harness, NODE, node) for node in nodes] == [[KEY], []]


def test_what_was_written_is_looked_at_although_nothing_was_heard_of_it() -> None:
    harness = JobHarness()
    again = reconcile(harness)
    made = harness.cluster.objects(SERVICE)
    assert made and again is not None
    # Nobody has seen it, so nobody hears that it is gone.
    harness.cluster.remove(SERVICE, ref_of(made[0]))
    reconcile(harness)
    assert harness.cluster.objects(SERVICE)


def test_a_settled_job_is_looked_at_only_when_something_changes() -> None:
    harness = JobHarness().running()
    harness.settle()
    assert reconcile(harness) is None


def test_events_are_asked_for_only_where_something_does_not_run() -> None:
    harness = JobHarness().running()
    asked: list[Kind] = []

    def note(verb: str, kind: Kind) -> None:
        if verb == "list":
            asked.append(kind)

    harness.cluster.faults = note
    reconcile(harness)
    assert asked == []
    harness.pod("Pending", waiting={"reason": "ContainerCreating"})
    reconcile(harness)
    assert len(asked) == 1


def test_agents_of_a_job_that_was_forced_out_are_deleted() -> None:
    harness = JobHarness().running()
    job = harness.job
    job["metadata"]["finalizers"] = []
    harness.cluster.put(job)
    harness.cluster.remove(FEDERATED_JOB, JOB_REF)
    assert len(harness.cluster.objects(SILO_AGENT)) == 2
    reconcile(harness)
    assert not harness.cluster.objects(SILO_AGENT)


def test_agents_are_spared_when_only_the_cache_does_not_know_the_job() -> None:
    harness = JobHarness().running()

    class Blind(View):
        @override
        def get(self, kind: Kind, ref: Ref) -> Object | None:
            return None if kind == FEDERATED_JOB else super().get(kind, ref)

    asyncio.run(
        JobController(harness.cluster, Blind(harness.cluster), SETTINGS, lambda: harness.now).reconcile(KEY)
    )
    assert len(harness.cluster.objects(SILO_AGENT)) == 2


def test_an_agent_that_anybody_made_is_not_the_job_s() -> None:
    harness = JobHarness().running()
    forged = harness.agent(NORTH)
    forged["metadata"] |= {"name": "forged", "namespace": SOUTH.namespace}
    harness.cluster.put(forged)
    harness.settle()
    assert harness.phase() == "Running"
    assert len(harness.job["status"]["silos"]) == 2
    assert ref_of(harness.agent(NORTH)) in [ref_of(agent) for agent in harness.cluster.objects(SILO_AGENT)]


def test_errors_of_the_cluster_are_passed_on_and_nothing_is_reported_before_it_is_done() -> None:
    harness = JobHarness()
    harness.cluster.faults = lambda verb, kind: ClusterUnavailable("500") if kind == SERVICE else None
    with pytest.raises(ClusterUnavailable):
        reconcile(harness)
    assert "status" not in harness.job


def test_a_job_that_is_not_there_is_no_error() -> None:
    assert reconcile(JobHarness(), Key(FEDERATED_JOB, Ref("federation", "other"))) is None
