"""Which children are made, and which are made again."""

from __future__ import annotations

import pytest

from fedsilo_operator.objects import CLAIM, CONFIG_MAP, JOB, POD, SILO_KIND, Kind, Ref, kind_of, ref_of
from fedsilo_operator.plan import ApplyAction, CreateAction
from fedsilo_operator.workloads.agent import TRAINER
from tests.unit.operator.silo.harness import (
    AGENT_REF,
    CHILDREN,
    NAME,
    SILO_REF,
    applied_objects,
    ended_status,
    started_world,
    world,
)


def test_children_are_owned_but_for_the_claim() -> None:
    scene = world()
    owners = {
        kind_of(action.object): action.object["metadata"].get("ownerReferences")
        for action in scene.plan().actions
        if isinstance(action, ApplyAction | CreateAction)
    }
    assert owners.pop(CLAIM) is None
    assert all(owner[0]["uid"] == scene.agent["metadata"]["uid"] for owner in owners.values() if owner)


@pytest.mark.parametrize("child", CHILDREN, ids=lambda child: str(child))
def test_a_child_that_is_deleted_comes_back(child: tuple[Kind, str]) -> None:
    scene = started_world()
    scene.remove(child[0], Ref(AGENT_REF.namespace, child[1]))
    assert applied_objects(scene.reconcile()) == [child]


def test_a_silo_that_is_edited_changes_nothing_under_a_job_that_runs() -> None:
    scene = started_world()
    scene.objects[SILO_KIND][SILO_REF]["spec"]["agent"] = {
        "guardImage": "registry.example/other:1",
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    assert scene.reconcile().settled


def test_a_job_that_was_deleted_is_made_again_when_its_pods_are_gone() -> None:
    scene = started_world()
    pod = scene.pods_of(scene.job(TRAINER) or {})[0]
    scene.remove(JOB, Ref(AGENT_REF.namespace, f"{NAME}-trainer"))
    scene.objects[POD][ref_of(pod)] = pod
    assert applied_objects(scene.reconcile()) == []
    assert "earlier pod (trainer)" in scene.message
    pod["status"] = ended_status(143)
    assert applied_objects(scene.reconcile()) == [(JOB, f"{NAME}-trainer")]


def test_children_of_an_earlier_agent_of_the_same_name_are_waited_for() -> None:
    earlier = started_world()
    scene = world()
    scene.agent["metadata"]["uid"] = "another"
    scene.objects[CONFIG_MAP] = earlier.objects[CONFIG_MAP]
    assert applied_objects(scene.reconcile()) == []
    assert f"ConfigMap {NAME}" in scene.message
    del scene.objects[CONFIG_MAP]
    assert applied_objects(scene.reconcile()) == CHILDREN


def test_a_claim_of_an_earlier_agent_is_used_again() -> None:
    earlier = started_world()
    scene = world()
    scene.agent["metadata"]["uid"] = "another"
    scene.objects[CLAIM] = earlier.objects[CLAIM]
    assert applied_objects(scene.reconcile()) == CHILDREN[1:]


def test_a_missing_job_is_not_made_while_the_agent_is_suspended() -> None:
    """A Job is made without a word about suspension, so it would start at once."""
    scene = started_world()
    scene.suspend(True)
    scene.remove(JOB, Ref(AGENT_REF.namespace, f"{NAME}-trainer"))
    assert applied_objects(scene.reconcile()) == [(JOB, f"{NAME}-guard")]
    assert scene.job(TRAINER) is None
