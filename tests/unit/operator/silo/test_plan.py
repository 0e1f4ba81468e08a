from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedsilo.api.observed import condition
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    JOB,
    KINDS,
    NETWORK_POLICY,
    POD,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Ref,
    kind_of,
    ref_of,
)
from fedsilo_operator.plan import Apply, Plan
from fedsilo_operator.silo.component import TRAINER_EXIT_SECONDS
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.scene import (
    AGENT_REF,
    NAME,
    OTHER_KEY,
    RUNNING,
    SETTINGS,
    SILO_REF,
    World,
    agent,
    ended,
    silo,
    world,
)

CHILDREN = [
    (CLAIM, NAME),
    (CONFIG_MAP, NAME),
    (NETWORK_POLICY, f"{NAME}-trainer"),
    (NETWORK_POLICY, f"{NAME}-guard"),
    (JOB, f"{NAME}-trainer"),
    (JOB, f"{NAME}-guard"),
]


def applied(plan: Plan) -> list[tuple[Kind, str]]:
    actions = [action for action in plan.actions if isinstance(action, Apply)]
    return [(kind_of(action.object), action.object["metadata"]["name"]) for action in actions]


def said(scene: World) -> list[tuple[str, str]]:
    return [(event.type, event.reason) for event in scene.events]


def suspended(scene: World, component: str) -> bool:
    job = scene.job(component)
    assert job is not None
    return bool(job["spec"].get("suspend"))


def started() -> World:
    scene = world()
    scene.reconcile()
    scene.run_all()
    scene.reconcile()
    return scene


def test_an_admitted_agent_that_is_suspended_has_no_children() -> None:
    scene = world(suspend=True)
    assert scene.reconcile().actions == ()
    assert scene.phase == "Admitted"
    assert scene.conditions == {"Admitted": ("True", "Admitted"), "Ready": ("False", "Suspended")}
    assert said(scene) == [("Normal", "Admitted")]


def test_network_policies_come_before_pods() -> None:
    assert applied(world().reconcile()) == CHILDREN


def test_children_are_owned_but_for_the_claim() -> None:
    scene = world()
    owners = {
        kind_of(action.object): action.object["metadata"].get("ownerReferences")
        for action in scene.plan().actions
        if isinstance(action, Apply)
    }
    assert owners.pop(CLAIM) is None
    assert all(owner[0]["uid"] == scene.agent["metadata"]["uid"] for owner in owners.values() if owner)


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
    assert said(scene) == [
        ("Normal", "Admitted"),
        ("Normal", "Starting"),
        ("Normal", "Running"),
        ("Normal", "Finished"),
    ]


@pytest.mark.parametrize("child", CHILDREN, ids=lambda child: str(child))
def test_a_child_that_is_deleted_comes_back(child: tuple[Kind, str]) -> None:
    scene = started()
    scene.remove(child[0], Ref(AGENT_REF.namespace, child[1]))
    assert applied(scene.reconcile()) == [child]


def test_a_silo_that_is_edited_changes_nothing_under_a_job_that_runs() -> None:
    scene = started()
    scene.objects[SILO_KIND][SILO_REF]["spec"]["agent"] = {
        "guardImage": "registry.example/other:1",
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    assert scene.reconcile().settled


def test_a_job_that_was_deleted_is_made_again_when_its_pods_are_gone() -> None:
    scene = started()
    pod = scene.owned(scene.job(TRAINER) or {})[0]
    scene.remove(JOB, Ref(AGENT_REF.namespace, f"{NAME}-trainer"))
    scene.objects[POD][ref_of(pod)] = pod
    assert applied(scene.reconcile()) == []
    assert "earlier pod (trainer)" in scene.message
    pod["status"] = ended(143)
    assert applied(scene.reconcile()) == [(JOB, f"{NAME}-trainer")]


def test_children_of_an_earlier_agent_of_the_same_name_are_waited_for() -> None:
    earlier = started()
    scene = world()
    scene.agent["metadata"]["uid"] = "another"
    scene.objects[CONFIG_MAP] = earlier.objects[CONFIG_MAP]
    assert applied(scene.reconcile()) == []
    assert f"ConfigMap {NAME}" in scene.message
    del scene.objects[CONFIG_MAP]
    assert applied(scene.reconcile()) == CHILDREN


def test_a_claim_of_an_earlier_agent_is_used_again() -> None:
    earlier = started()
    scene = world()
    scene.agent["metadata"]["uid"] = "another"
    scene.objects[CLAIM] = earlier.objects[CLAIM]
    assert applied(scene.reconcile()) == CHILDREN[1:]


def test_suspending_stops_the_pods_and_resuming_starts_them() -> None:
    scene = started()
    scene.suspend(True)
    scene.reconcile()
    assert suspended(scene, TRAINER)
    assert suspended(scene, GUARD)
    assert (scene.phase, scene.message) == ("Suspended", "The pods are being stopped.")
    scene.objects[POD] = {}
    scene.reconcile()
    assert (scene.phase, scene.message) == ("Suspended", "No pods: the job is suspended or over.")
    scene.suspend(False)
    scene.reconcile()
    assert not suspended(scene, TRAINER)
    assert not suspended(scene, GUARD)
    assert scene.phase == "Starting"


def test_a_missing_job_is_not_made_while_the_agent_is_suspended() -> None:
    """A Job is made without a word about suspension, so it would start at once."""
    scene = started()
    scene.suspend(True)
    scene.remove(JOB, Ref(AGENT_REF.namespace, f"{NAME}-trainer"))
    assert applied(scene.reconcile()) == [(JOB, f"{NAME}-guard")]
    assert scene.job(TRAINER) is None


def test_a_silo_that_changes_its_mind_stops_the_pods_and_may_change_it_back() -> None:
    scene = started()
    policy = scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]
    policy["methods"] = ["creff"]
    scene.reconcile()
    assert scene.phase == "Refused"
    assert scene.conditions == {"Admitted": ("False", "PolicyRefused"), "Ready": ("False", "Admitting")}
    assert suspended(scene, TRAINER)
    assert suspended(scene, GUARD)
    assert said(scene)[-1] == ("Warning", "PolicyRefused")
    del policy["methods"]
    scene.reconcile()
    assert not suspended(scene, TRAINER)
    scene.run_all()
    scene.reconcile()
    assert scene.phase == "Running"


def test_an_agent_without_its_silo() -> None:
    scene = World(agent())
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("Pending", ("False", "SiloNotFound"))
    assert "Silo silo-north/north does not exist; create it" in scene.message


def test_an_agent_whose_silo_has_no_key_yet() -> None:
    content = silo()
    content["status"] = {
        "conditions": [_condition("Ready", "False", "KeyInvalid", "Secret a/b is not a key.")]
    }
    scene = World(agent(), content)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("Pending", ("Unknown", "SiloNotReady"))
    assert scene.message.endswith("Secret a/b is not a key.")


def test_an_agent_that_waits_for_a_person() -> None:
    scene = World(agent(suspend=True), silo({"manualApproval": True}))
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("ApprovalPending", ("False", "ApprovalPending"))
    assert said(scene) == [("Warning", "ApprovalPending")]


def test_an_agent_or_silo_of_another_version_is_not_admitted() -> None:
    later, offer = agent(), silo()
    later["spec"]["job"]["spec"]["telepathy"] = True
    offer["spec"]["policy"]["telepathy"] = True
    scene = World(later, silo())
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("Unknown", "Unreadable")
    assert scene.phase == "Pending"
    assert "spec.job.spec.telepathy" in scene.message
    scene = World(agent(), offer)
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("Unknown", "Unreadable")
    assert "spec.policy.telepathy" in scene.message
    assert scene.job(TRAINER) is None


@pytest.mark.parametrize("whose", ["agent", "silo"])
def test_pods_of_another_version_go_on(whose: str) -> None:
    scene = started()
    theirs = scene.agent if whose == "agent" else scene.objects[SILO_KIND][SILO_REF]
    theirs["spec"]["telepathy"] = True
    assert scene.reconcile().actions == ()
    assert (scene.phase, scene.conditions["Ready"]) == ("Running", ("True", "Running"))
    assert scene.conditions["Admitted"] == ("Unknown", "Unreadable")
    assert "Pods that run go on as they are." in scene.message
    assert said(scene)[-1] == ("Warning", "Unreadable")
    scene.suspend(True)
    assert len(scene.reconcile().actions) == 2, "the job may stop them"
    scene.suspend(False)
    del theirs["spec"]["telepathy"]
    scene.reconcile()
    scene.run_all()
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("True", "Admitted")
    assert scene.phase == "Running"


def test_the_image_that_runs_is_the_one_that_the_policy_is_asked_about() -> None:
    old, new = (f"registry.example/fedsilo-trainer:0.1@sha256:{digit * 64}" for digit in "ab")
    scene = World(agent(), silo({"trainerImages": [old]}))
    scene.reconcile(replace(SETTINGS, trainer_image=old))
    scene.run_all()
    upgraded = replace(SETTINGS, trainer_image=new)
    scene.reconcile(upgraded)
    assert scene.phase == "Running"
    scene.remove(JOB, ref_of(scene.job(TRAINER) or {}))
    scene.reconcile(upgraded)
    assert scene.conditions["Admitted"] == ("False", "PolicyRefused"), "a new Job would have the new image"
    assert scene.job(TRAINER) is None


def edited(scene: World) -> None:
    scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"] = {"maxRounds": 1000}


def test_a_lost_configuration_is_made_again_as_it_was() -> None:
    scene = started()
    before = scene.objects[CONFIG_MAP][AGENT_REF]["data"]
    del scene.objects[CONFIG_MAP][AGENT_REF]
    scene.reconcile()
    assert scene.objects[CONFIG_MAP][AGENT_REF]["data"] == before
    assert scene.phase == "Running"


def test_an_edited_silo_changes_nothing_by_the_loss_of_the_configuration() -> None:
    scene = started()
    edited(scene)
    scene.reconcile()
    assert scene.phase == "Running", "what the guard checks is frozen"
    del scene.objects[CONFIG_MAP][AGENT_REF]
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("False", "TrustBroken")
    assert "is gone, and the Silo is not any more what guard and trainer began with" in scene.message
    assert all((scene.job(name) or {})["spec"]["suspend"] for name in (TRAINER, GUARD))
    assert AGENT_REF not in scene.objects[CONFIG_MAP]
    scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"] = {}
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("True", "Admitted")
    assert AGENT_REF in scene.objects[CONFIG_MAP]


def test_a_configuration_that_was_made_by_hand_stops_the_silo() -> None:
    scene = started()
    scene.objects[CONFIG_MAP][AGENT_REF]["data"]["silo.json"] = "{}"
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("False", "TrustBroken")
    assert "is not the one with which guard and trainer began. Delete it" in scene.message


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_a_job_that_failed_fails_the_agent_in_its_own_words(component: str) -> None:
    scene = started()
    job = scene.job(component)
    assert job is not None
    (pod,) = scene.owned(job)
    words = (
        '{"reason": "DataInvalid", "message": "scans/train.npz: holds no array images; name it in config"}'
    )
    pod["status"] = ended(3, words)
    scene.end(component, "Failed", reason="PodFailurePolicy", message="exit code 3 matched")
    scene.reconcile()
    assert (scene.phase, scene.conditions["Failed"]) == ("Failed", ("True", "DataInvalid"))
    assert said(scene).count(("Warning", "DataInvalid")) == 1
    told = {
        GUARD: ": scans/train.npz: holds no array images; name it in config.",
        TRAINER: "; its log says more: kubectl fedsilo logs digits -n federation --silo north --component trainer.",
    }
    assert scene.message == f"The {component} ended with exit code 3 (DataInvalid){told[component]}"
    assert said(scene)[-1] == ("Warning", "DataInvalid")


def test_the_look_at_the_network_is_the_trainers_start_and_may_be_its_end() -> None:
    scene = started()
    job = scene.job(TRAINER)
    assert job is not None
    (pod,) = scene.owned(job)
    waits = {"ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
    looks = {"ready": False, "state": {"running": {}}}
    pod["status"] = {"phase": "Pending", "initContainerStatuses": [looks], "containerStatuses": [waits]}
    scene.reconcile()
    assert (scene.phase, scene.message) == ("Starting", "Waiting for the trainer to run.")
    words = '{"reason": "PolicyRefused", "message": "isolation: 10.96.0.1:443 (TCP) can be reached"}'
    looked = ended(5, words)["containerStatuses"]
    pod["status"] = {"phase": "Failed", "initContainerStatuses": looked, "containerStatuses": [waits]}
    scene.end(TRAINER, "Failed", reason="PodFailurePolicy", message="exit code 5 matched")
    scene.reconcile()
    assert (scene.phase, scene.conditions["Failed"]) == ("Failed", ("True", "PolicyRefused"))
    assert scene.message == (
        "The trainer did not begin, since the look at its network ended with exit code 5 (PolicyRefused): "
        "isolation: 10.96.0.1:443 (TCP) can be reached."
    )


def test_a_guard_outlives_its_trainer_to_tell_the_aggregator_until_the_job_is_over() -> None:
    scene = started()
    scene.end(
        TRAINER, "Failed", reason="BackoffLimitExceeded", message="has reached the specified backoff limit"
    )
    scene.reconcile()
    assert not suspended(scene, GUARD)
    scene.suspend(True)
    scene.reconcile()
    assert suspended(scene, GUARD)
    assert scene.phase == "Failed"


def test_a_trainer_without_a_guard_gives_its_gpu_back() -> None:
    scene = started()
    scene.end(GUARD, "Failed", reason="PodFailurePolicy", message="exit code 5 matched")
    scene.reconcile()
    assert suspended(scene, TRAINER)


def test_a_trainer_whose_guard_is_done_may_end_by_itself() -> None:
    scene = started()
    scene.end(GUARD, "Complete")
    scene.suspend(True)
    assert scene.reconcile().requeue_after == TRAINER_EXIT_SECONDS
    assert not suspended(scene, TRAINER)
    scene.end(TRAINER, "Complete")
    assert scene.reconcile().requeue_after is None
    assert scene.phase == "Finished"
    assert not suspended(scene, TRAINER)


def test_a_silo_is_finished_when_its_guard_is_though_the_trainer_was_stopped() -> None:
    scene = started()
    scene.end(GUARD, "Complete")
    scene.suspend(True)
    scene.pass_time(TRAINER_EXIT_SECONDS - 1)
    assert scene.reconcile().requeue_after == 1
    assert not suspended(scene, TRAINER)
    scene.pass_time(1)
    scene.reconcile()
    assert suspended(scene, TRAINER)
    assert scene.phase == "Suspended"
    scene.objects[POD] = {}
    scene.reconcile()
    assert scene.phase == "Finished"


def test_an_end_is_never_taken_back() -> None:
    scene = started()
    scene.end(TRAINER, "Complete")
    scene.end(GUARD, "Complete")
    scene.reconcile()
    before = condition(scene.agent, "Finished")
    scene.objects = {SILO_AGENT: scene.objects[SILO_AGENT]}
    scene.suspend(True)
    scene.pass_time(3600)
    plan = scene.reconcile()
    assert plan.actions == ()
    assert plan.events == ()
    after = condition(scene.agent, "Finished")
    assert scene.phase == "Finished"
    assert before is not None
    assert after == {**before, "observedGeneration": 2}


def test_an_agent_that_is_on_its_way_out_is_left_alone() -> None:
    scene = started()
    scene.agent["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert scene.plan() == Plan()


def test_the_trouble_of_a_pod_is_told() -> None:
    scene = world()
    scene.reconcile()
    scene.pod(
        TRAINER, phase="Pending", conditions=[_condition("PodScheduled", "False", "Unschedulable", "no GPU")]
    )
    scene.pod(
        GUARD, phase="Pending", conditions=[_condition("PodScheduled", "False", "Unschedulable", "affinity")]
    )
    scene.reconcile()
    assert (scene.phase, scene.conditions["Ready"]) == ("Starting", ("False", "Unschedulable"))
    assert "no GPU" in scene.message
    assert said(scene)[-1] == ("Warning", "Unschedulable")


def test_a_guard_may_wait_a_moment_for_the_place_of_its_trainer() -> None:
    scene = world()
    scene.reconcile()
    scene.pod(TRAINER, **RUNNING)
    scene.pod(
        GUARD, phase="Pending", conditions=[_condition("PodScheduled", "False", "Unschedulable", "affinity")]
    )
    scene.pass_time(5)
    scene.reconcile()
    assert scene.conditions["Ready"] == ("False", "Starting")
    scene.pass_time(15)
    scene.reconcile()
    assert scene.conditions["Ready"] == ("False", "Unschedulable")


def test_an_agent_that_does_not_run_is_looked_at_again_ever_more_rarely() -> None:
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
        "Running": started(),
        "Suspended": started(),
        "Finished": started(),
        "Failed": started(),
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


def test_a_silo_whose_key_has_changed_is_not_what_the_job_was_made_for() -> None:
    content = silo()
    content["status"]["publicKey"] = OTHER_KEY
    scene = World(agent(), content)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("Refused", ("False", "TrustBroken"))


def test_every_kind_that_is_applied_is_one_the_operator_knows() -> None:
    for action in world().plan().actions:
        assert isinstance(action, Apply)
        assert (action.object["apiVersion"], action.object["kind"]) in KINDS


def _condition(name: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
