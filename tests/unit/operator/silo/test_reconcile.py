"""From admission to the end: what a reconcile makes of each step, and that it settles."""

from __future__ import annotations

from fedsilo_operator.objects import KINDS, POD
from fedsilo_operator.plan import ApplyAction, CreateAction, Plan
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.harness import (
    CHILDREN,
    RUNNING,
    World,
    agent,
    applied_objects,
    ended_status,
    recorded_events,
    silo,
    started_world,
    stated_condition,
    suspended,
    world,
)


def test_an_admitted_agent_that_is_suspended_has_no_children() -> None:
    scene = world(suspend=True)
    assert scene.reconcile().actions == ()
    assert scene.phase == "Admitted"
    assert scene.conditions == {"Admitted": ("True", "Admitted"), "Ready": ("False", "Suspended")}
    assert recorded_events(scene) == [("Normal", "Admitted")]


def test_network_policies_come_before_pods() -> None:
    assert applied_objects(world().reconcile()) == CHILDREN


def test_a_job_runs_from_admission_to_its_end() -> None:
    scene = world(suspend=True)
    scene.reconcile()
    scene.suspend(False)
    scene.reconcile()
    assert scene.phase == "Starting"
    scene.run_all()
    scene.reconcile()
    assert (scene.phase, scene.conditions["Ready"]) == ("Running", ("True", "Running"))
    scene.end(TRAINER, "Complete")
    scene.reconcile()
    assert scene.phase == "Running"
    scene.end(GUARD, "Complete")
    scene.reconcile()
    assert scene.phase == "Finished"
    assert scene.conditions["Finished"] == ("True", "Finished")
    assert recorded_events(scene) == [
        ("Normal", "Admitted"),
        ("Normal", "Running"),
        ("Normal", "Finished"),
    ]


def test_suspending_stops_the_pods_and_resuming_starts_them() -> None:
    scene = started_world()
    scene.suspend(True)
    scene.reconcile()
    assert suspended(scene, TRAINER)
    assert suspended(scene, GUARD)
    assert (scene.phase, scene.message) == ("Suspended", "The pods are being stopped.")
    scene.objects[POD] = {}
    scene.reconcile()
    assert (scene.phase, scene.message) == ("Suspended", "No pods: the job is suspended, put off or over.")
    scene.suspend(False)
    scene.reconcile()
    assert not suspended(scene, TRAINER)
    assert not suspended(scene, GUARD)
    assert scene.phase == "Starting"


def test_an_agent_that_is_being_deleted_is_left_alone() -> None:
    scene = started_world()
    scene.agent["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert scene.plan() == Plan()


def test_what_keeps_a_pod_from_running_is_in_the_status_once_it_has_lasted() -> None:
    scene = world()
    scene.reconcile()
    scene.pod(
        TRAINER,
        phase="Pending",
        conditions=[stated_condition("PodScheduled", "False", "Unschedulable", "no GPU")],
    )
    scene.pod(
        GUARD,
        phase="Pending",
        conditions=[stated_condition("PodScheduled", "False", "Unschedulable", "affinity")],
    )
    scene.pass_time(1)
    before = recorded_events(scene)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Ready"]) == ("Starting", ("False", "Starting"))
    scene.pass_time(2)
    assert scene.reconcile().requeue_after == 1, "when the patience is over, and not with the next look"
    assert recorded_events(scene) == before, "nobody is warned of what may pass"
    scene.pass_time(1)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Ready"]) == ("Starting", ("False", "Unschedulable"))
    assert "no GPU" in scene.message
    assert recorded_events(scene)[-1] == ("Warning", "Unschedulable")


def test_a_pod_that_is_scheduled_a_moment_later_leaves_no_warning() -> None:
    scene = world()
    scene.reconcile()
    for component in (TRAINER, GUARD):
        unscheduled = stated_condition("PodScheduled", "False", "Unschedulable", "another pod leaves")
        scene.pod(component, phase="Pending", conditions=[unscheduled])
    scene.pass_time(3)
    scene.reconcile()
    scene.run_all()
    scene.pass_time(60)
    scene.reconcile()
    assert scene.phase == "Running"
    assert [kind for kind, _ in recorded_events(scene)] == ["Normal", "Normal"]


def test_an_eviction_after_which_the_pod_starts_again_is_no_warning() -> None:
    scene = started_world()
    evicted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "drain",
    }
    job = scene.job(TRAINER)
    assert job is not None
    for pod in scene.pods_of(job):
        pod["status"] = ended_status(137) | {"conditions": [evicted]}
    scene.reconcile()
    assert scene.conditions["Ready"] == ("False", "Evicted")
    assert recorded_events(scene)[-1] == ("Normal", "Evicted")


def test_a_guard_may_wait_briefly_for_the_node_of_its_trainer() -> None:
    scene = world()
    scene.reconcile()
    scene.pod(TRAINER, **RUNNING)
    scene.pod(
        GUARD,
        phase="Pending",
        conditions=[stated_condition("PodScheduled", "False", "Unschedulable", "affinity")],
    )
    scene.pass_time(12)
    assert scene.reconcile().requeue_after == 3
    assert scene.conditions["Ready"] == ("False", "Starting")
    scene.pass_time(3)
    scene.reconcile()
    assert scene.conditions["Ready"] == ("False", "Unschedulable")


def test_an_agent_that_does_not_run_is_requeued_with_backoff() -> None:
    scene = world()
    scene.reconcile()
    waits = []
    for _ in range(9):
        pause = scene.reconcile().requeue_after
        assert pause is not None
        waits.append(pause)
        scene.pass_time(pause)
    assert waits == [5, 5, 10, 20, 40, 80, 160, 300, 300]
    scene.run_all()
    assert scene.reconcile().requeue_after is None


def test_every_phase_settles() -> None:
    """A second reconcile writes nothing, whatever the phase."""
    scenes: dict[str, World] = {
        "Pending": World(agent()),
        "Refused": World(agent(), silo({"methods": ["creff"]})),
        "ApprovalPending": World(agent(), silo({"manualApproval": True})),
        "Admitted": world(suspend=True),
        "Starting": world(),
        "Running": started_world(),
        "Suspended": started_world(),
        "Finished": started_world(),
        "Failed": started_world(),
    }
    scenes["Suspended"].suspend(True)
    for component in (TRAINER, GUARD):
        scenes["Finished"].end(component, "Complete")
        scenes["Failed"].end(component, "Failed", reason="BackoffLimitExceeded", message="no more")
    for phase, scene in scenes.items():
        scene.reconcile()
        scene.pass_time(100)
        assert scene.phase == phase
        assert scene.plan().settled, phase


def test_every_kind_that_is_applied_is_one_the_operator_knows() -> None:
    for action in world().plan().actions:
        assert isinstance(action, ApplyAction | CreateAction)
        assert (action.object["apiVersion"], action.object["kind"]) in KINDS
