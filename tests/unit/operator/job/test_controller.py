"""What wakes the job controller, what it asks the cluster itself, and whom it sweeps away."""

from __future__ import annotations

import asyncio

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import Unavailable
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.objects import FEDERATED_JOB, JOB, SERVICE, SILO_AGENT, SILO_KIND, Kind, Ref, ref_of
from fedsilo_operator.runtime.queue import Key
from tests.unit.operator.job.scene import EAST, JOB_REF, NORTH, SETTINGS, SOUTH, Scene, View, manifest, silo

KEY = Key(FEDERATED_JOB, JOB_REF)


def controller(scene: Scene) -> JobController:
    return JobController(scene.cluster, View(scene.cluster), SETTINGS, lambda: scene.now)


def woken(scene: Scene, kind: Kind, obj: Object) -> list[Key]:
    (watch,) = [watch for watch in controller(scene).watches() if watch.kind == kind]
    return list(watch.keys(obj))


def reconcile(scene: Scene, key: Key = KEY) -> float | None:
    return asyncio.run(controller(scene).reconcile(key))


def test_a_job_wakes_itself_and_its_children_wake_it() -> None:
    scene = Scene().running()
    assert woken(scene, FEDERATED_JOB, scene.job) == [KEY]
    assert woken(scene, JOB, scene.batch()) == [KEY]
    assert woken(scene, SERVICE, scene.cluster.objects(SERVICE)[0]) == [KEY]
    assert woken(scene, SILO_AGENT, scene.agent(NORTH)) == [KEY]
    assert woken(scene, SILO_AGENT, {"metadata": {"name": "x", "namespace": "y"}}) == []


def test_silos_wake_the_jobs_that_could_mean_them_until_they_are_over() -> None:
    scene = Scene()
    assert woken(scene, SILO_KIND, silo(NORTH)) == [KEY]
    assert woken(scene, SILO_KIND, silo(Ref("clinic", "north"))) == [KEY], "for the remedy that names it"
    assert woken(scene, SILO_KIND, silo(EAST)) == []
    scene.running().fail(NORTH)
    assert woken(scene, SILO_KIND, silo(NORTH)) == [KEY]
    scene.settle()
    assert woken(scene, SILO_KIND, silo(NORTH)) == []
    selecting = Scene(manifest(silos={"selector": {"matchLabels": {"a": "b"}}}))
    assert woken(selecting, SILO_KIND, silo(EAST)) == [KEY]


def test_every_watch_of_a_child_is_narrow() -> None:
    for watch in controller(Scene()).watches():
        if watch.kind not in (FEDERATED_JOB, SILO_KIND, SILO_AGENT):
            assert "component=aggregator" in watch.labels, watch.kind


def test_what_was_written_is_looked_at_although_nothing_was_heard_of_it() -> None:
    scene = Scene()
    again = reconcile(scene)
    made = scene.cluster.objects(SERVICE)
    assert made and again is not None
    # Nobody has seen it, so nobody hears that it is gone.
    scene.cluster.remove(SERVICE, ref_of(made[0]))
    reconcile(scene)
    assert scene.cluster.objects(SERVICE)


def test_a_settled_job_is_looked_at_only_when_something_changes() -> None:
    scene = Scene().running()
    scene.settle()
    assert reconcile(scene) is None


def test_events_are_asked_for_only_where_something_does_not_run() -> None:
    scene = Scene().running()
    asked: list[Kind] = []

    def note(verb: str, kind: Kind) -> None:
        if verb == "list":
            asked.append(kind)

    scene.cluster.faults = note
    reconcile(scene)
    assert asked == []
    scene.pod("Pending", waiting={"reason": "ContainerCreating"})
    reconcile(scene)
    assert len(asked) == 1


def test_agents_of_a_job_that_was_forced_out_are_deleted() -> None:
    scene = Scene().running()
    job = scene.job
    job["metadata"]["finalizers"] = []
    scene.cluster.put(job)
    scene.cluster.remove(FEDERATED_JOB, JOB_REF)
    assert len(scene.cluster.objects(SILO_AGENT)) == 2
    reconcile(scene)
    assert not scene.cluster.objects(SILO_AGENT)


def test_agents_are_spared_when_only_the_cache_does_not_know_the_job() -> None:
    scene = Scene().running()

    class Blind(View):
        def get(self, kind: Kind, ref: Ref) -> Object | None:
            return None if kind == FEDERATED_JOB else super().get(kind, ref)

    asyncio.run(
        JobController(scene.cluster, Blind(scene.cluster), SETTINGS, lambda: scene.now).reconcile(KEY)
    )
    assert len(scene.cluster.objects(SILO_AGENT)) == 2


def test_an_agent_that_anybody_made_is_not_the_job_s() -> None:
    scene = Scene().running()
    forged = scene.agent(NORTH)
    forged["metadata"] |= {"name": "forged", "namespace": SOUTH.namespace}
    scene.cluster.put(forged)
    scene.settle()
    assert scene.phase() == "Running"
    assert len(scene.job["status"]["silos"]) == 2
    assert ref_of(scene.agent(NORTH)) in [ref_of(agent) for agent in scene.cluster.objects(SILO_AGENT)]


def test_errors_of_the_cluster_are_passed_on_and_nothing_is_said_before_it_is_done() -> None:
    scene = Scene()
    scene.cluster.faults = lambda verb, kind: Unavailable("500") if kind == SERVICE else None
    with pytest.raises(Unavailable):
        reconcile(scene)
    assert "status" not in scene.job


def test_a_job_that_is_not_there_is_no_error() -> None:
    assert reconcile(Scene(), Key(FEDERATED_JOB, Ref("federation", "other"))) is None
