"""Whether a silo admits the job, and what that does to the pods."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from fedsilo_operator.objects import CONFIG_MAP, JOB, SILO_KIND, ref_of
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.harness import (
    AGENT_REF,
    OTHER_KEY,
    POLICY_REF,
    SETTINGS,
    SILO_REF,
    World,
    agent,
    applied_objects,
    recorded_events,
    silo,
    started_world,
    stated_condition,
    suspended,
)


def test_a_silo_that_changes_its_mind_stops_the_pods_and_may_change_it_back() -> None:
    scene = started_world()
    policy = scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]
    policy["methods"] = ["creff"]
    scene.reconcile()
    assert scene.phase == "Refused"
    assert scene.conditions == {"Admitted": ("False", "PolicyRefused"), "Ready": ("False", "Admitting")}
    assert suspended(scene, TRAINER)
    assert suspended(scene, GUARD)
    assert recorded_events(scene)[-1] == ("Warning", "PolicyRefused")
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
        "conditions": [stated_condition("Ready", "False", "KeyInvalid", "Secret a/b is not a key.")]
    }
    scene = World(agent(), content)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("Pending", ("Unknown", "SiloNotReady"))
    assert scene.message.endswith("Secret a/b is not a key.")


def test_an_agent_that_waits_for_a_person() -> None:
    scene = World(agent(suspend=True), silo({"manualApproval": True}))
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("ApprovalPending", ("False", "ApprovalPending"))
    assert recorded_events(scene) == [("Warning", "ApprovalPending")]


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
    scene = started_world()
    theirs = scene.agent if whose == "agent" else scene.objects[SILO_KIND][SILO_REF]
    theirs["spec"]["telepathy"] = True
    assert scene.reconcile().actions == ()
    assert (scene.phase, scene.conditions["Ready"]) == ("Running", ("True", "Running"))
    assert scene.conditions["Admitted"] == ("Unknown", "Unreadable")
    assert "Pods that run go on as they are." in scene.message
    assert recorded_events(scene)[-1] == ("Warning", "Unreadable")
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


def current_policy(scene: World) -> dict[str, Any]:
    """The policy as the guard reads it."""
    found: dict[str, Any] = json.loads(scene.objects[CONFIG_MAP][POLICY_REF]["data"]["silo.json"])
    assert found["metadata"] == {"name": "north", "namespace": "silo-north"}
    return dict(found["spec"]["policy"])


def test_a_guard_that_runs_is_told_the_policy_as_it_is_now() -> None:
    scene = started_world()
    rules = scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]
    frozen = copy.deepcopy(scene.objects[CONFIG_MAP][AGENT_REF])
    rules["maxBytesPerRound"] = "10Mi"
    assert applied_objects(scene.reconcile()) == [(CONFIG_MAP, POLICY_REF.name)]
    assert current_policy(scene)["maxBytesPerRound"] == "10Mi"
    assert scene.plan().settled
    assert scene.phase == "Running"
    assert scene.objects[CONFIG_MAP][AGENT_REF] == frozen


def test_it_is_told_too_while_its_silo_does_not_admit_the_job() -> None:
    scene = started_world()
    scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]["methods"] = ["creff"]
    scene.reconcile()
    assert scene.phase == "Refused"
    assert current_policy(scene)["methods"] == ["creff"]
    assert scene.plan().settled


def test_a_present_policy_that_somebody_else_changed_is_put_right() -> None:
    scene = started_world()
    scene.objects[CONFIG_MAP][POLICY_REF]["data"]["silo.json"] = "{}"
    scene.reconcile()
    assert current_policy(scene)["minSamplesPerClass"] == 5
    assert scene.phase == "Running"


def test_decisions_about_jobs_are_not_told() -> None:
    scene = started_world()
    entry = {"job": "other", "specDigest": "a" * 64, "decision": "Refused", "note": "patient 7"}
    scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]["approvals"] = [entry]
    assert scene.reconcile().settled


def test_a_job_waits_for_its_first_day_and_ends_with_its_last() -> None:
    scene = World(agent(), silo({"notBefore": "2026-03-01T12:10:00Z", "notAfter": "2026-03-01T14:00:00Z"}))
    assert scene.reconcile().requeue_after == 600
    assert (scene.phase, scene.conditions["Admitted"]) == ("Refused", ("False", "PolicyRefused"))
    scene.pass_time(600)
    scene.reconcile()
    scene.run_all()
    assert scene.reconcile().requeue_after == 3600, "an hour at most"
    assert scene.phase == "Running"
    scene.pass_time(3600)
    assert scene.reconcile().requeue_after == 3001
    scene.pass_time(3001)
    assert scene.reconcile().requeue_after is None
    assert (scene.phase, scene.conditions["Admitted"]) == ("Refused", ("False", "PolicyRefused"))
    assert suspended(scene, GUARD)
    assert suspended(scene, TRAINER)


def edit_policy(scene: World) -> None:
    scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"] = {"maxRounds": 1000}


def test_a_lost_configuration_is_made_again_as_it_was() -> None:
    scene = started_world()
    before = scene.objects[CONFIG_MAP][AGENT_REF]["data"]
    del scene.objects[CONFIG_MAP][AGENT_REF]
    scene.reconcile()
    assert scene.objects[CONFIG_MAP][AGENT_REF]["data"] == before
    assert scene.phase == "Running"


def test_an_edited_silo_changes_nothing_by_the_loss_of_the_configuration() -> None:
    scene = started_world()
    edit_policy(scene)
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


def test_a_configuration_that_somebody_changed_stops_the_silo() -> None:
    scene = started_world()
    scene.objects[CONFIG_MAP][AGENT_REF]["data"]["silo.json"] = "{}"
    scene.reconcile()
    assert scene.conditions["Admitted"] == ("False", "TrustBroken")
    assert "is not the one with which guard and trainer began. Delete it" in scene.message


def test_a_silo_whose_key_has_changed_is_not_what_the_job_was_made_for() -> None:
    content = silo()
    content["status"]["publicKey"] = OTHER_KEY
    scene = World(agent(), content)
    scene.reconcile()
    assert (scene.phase, scene.conditions["Admitted"]) == ("Refused", ("False", "TrustBroken"))
