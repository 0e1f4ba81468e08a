"""Decisions of a silo are signed when they change, kept when only time passes, and nothing of them can be changed
unseen."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.agent import Decision, Proposal
from fedsilo.api.observed import Object
from fedsilo.api.proposal import proposal_digest
from fedsilo.errors import Problem
from fedsilo.silo.decision import read_decision
from fedsilo.wire import SigningKey
from fedsilo_operator.objects import SILO_AGENT, SILO_KIND, Ref
from fedsilo_operator.silo.assess import UNSIGNED_POLL_SECONDS, assess
from fedsilo_operator.silo.observe import observe
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.harness import (
    KEY,
    NAME,
    SETTINGS,
    SIGNING,
    SILO_REF,
    UID,
    World,
    agent,
    silo,
    started_world,
    world,
)


def signed_decision(scene: World) -> Decision:
    """The decision in the status, whose signature holds."""
    return read_decision(scene.agent["status"]["decision"], KEY)


def policy_of(scene: World) -> dict[str, Any]:
    found: dict[str, Any] = scene.objects[SILO_KIND][SILO_REF]["spec"]["policy"]
    return found


def digest_of_proposal(scene: World) -> str:
    return proposal_digest(Proposal.model_validate(scene.agent["status"]["proposal"]))


def approve(scene: World, decision: str = "Approved", **more: Any) -> None:
    digest = scene.agent["spec"]["job"]["specDigest"]
    entry = {"job": UID, "specDigest": digest, "proposal": digest_of_proposal(scene), "decision": decision}
    policy_of(scene)["approvals"] = [entry | more]


def test_an_admission_is_signed_with_everything_it_is_about() -> None:
    scene = world(suspend=True)
    scene.reconcile()
    found = signed_decision(scene)
    assert (found.silo, found.decision, found.objections) == ("silo-north/north", "Admitted", ())
    assert found.proposal == digest_of_proposal(scene)
    assert found.time == "2026-03-01T12:00:00Z"
    assert found.key_id == SIGNING.verify_key.key_id
    assert (found.decided_by, found.decided_at) == (None, None)


def test_a_refusal_states_all_objections() -> None:
    scene = World(agent(), silo({"methods": ["creff"], "maxRounds": 1, "manualApproval": True}))
    scene.reconcile()
    assert signed_decision(scene).decision == "Refused"
    assert [one.reason for one in signed_decision(scene).objections] == [
        "PolicyRefused",
        "PolicyRefused",
        "ApprovalPending",
    ]
    assert " ".join(one.message for one in signed_decision(scene).objections) == scene.message


def test_time_makes_no_new_decision_and_reads_no_key() -> None:
    scene = started_world()
    before, signatures = scene.agent["status"]["decision"], scene.signatures
    assert signatures == 1
    for component in (TRAINER, GUARD):
        scene.pass_time(86400)
        scene.end(component, "Complete")
        scene.reconcile()
    assert scene.phase == "Finished"
    assert scene.agent["status"]["decision"] == before
    assert scene.signatures == signatures


def test_an_edit_of_the_policy_gives_a_new_decision() -> None:
    scene = started_world()
    scene.pass_time(60)
    policy_of(scene)["methods"] = ["creff"]
    scene.reconcile()
    assert (signed_decision(scene).decision, signed_decision(scene).time) == (
        "Refused",
        "2026-03-01T12:01:00Z",
    )
    policy_of(scene)["methods"] = ["fedavg"]
    scene.reconcile()
    assert signed_decision(scene).decision == "Admitted"
    policy_of(scene)["payloadKinds"] = ["model", "class_counts"]
    plan = scene.plan()
    assert plan.status is None and not plan.awaits_signature, (
        "what changes no decision is signed no second time"
    )


def test_another_proposal_is_another_decision() -> None:
    scene = world(suspend=True)
    scene.reconcile()
    before = signed_decision(scene).proposal
    scene.agent["spec"]["trust"]["taskKey"] = "ed25519:" + "C" * 43 + "="
    scene.reconcile()
    assert signed_decision(scene).proposal == digest_of_proposal(scene) != before


def test_who_approved_and_when_is_signed() -> None:
    scene = World(agent(suspend=True), silo({"manualApproval": True}))
    scene.reconcile()
    assert signed_decision(scene).decision == "Refused"
    approve(scene, by="dr.meyer@north.example", time="2026-03-01T12:00:30Z")
    scene.reconcile()
    assert signed_decision(scene).decision == "Admitted"
    assert (signed_decision(scene).decided_by, signed_decision(scene).decided_at) == (
        "dr.meyer@north.example",
        "2026-03-01T12:00:30Z",
    )
    approve(scene, "Refused", by="dr.maier@north.example", note="not this year")
    scene.reconcile()
    assert (signed_decision(scene).decision, signed_decision(scene).decided_by) == (
        "Refused",
        "dr.maier@north.example",
    )
    assert "not this year" in signed_decision(scene).objections[0].message


@pytest.mark.parametrize("key", [None, SigningKey.from_seed(b"o" * 32)])
def test_without_the_published_key_nothing_is_signed_until_it_is_back(key: SigningKey | None) -> None:
    scene = world(suspend=True)
    scene.signing_key = key
    found = scene.reconcile()
    assert scene.phase == "Admitted"
    assert "decision" not in scene.agent["status"]
    assert found.requeue_after == UNSIGNED_POLL_SECONDS
    scene.signing_key = SIGNING
    scene.reconcile()
    assert signed_decision(scene).decision == "Admitted"


def test_where_nothing_can_be_decided_the_last_word_stays() -> None:
    scene = started_world()
    before = scene.agent["status"]["decision"]
    scene.agent["spec"]["telepathy"] = True
    scene.reconcile()
    assert scene.conditions["Admitted"][0] == "Unknown"
    assert scene.agent["status"]["decision"] == before


def test_an_agent_in_another_namespace_gets_no_signature() -> None:
    stray = agent()
    stray["metadata"]["namespace"] = "silo-east"
    scene = World(stray, silo())
    seen = observe(scene, Ref("silo-east", NAME))
    assert seen is not None
    state = assess(replace(seen, signing_key=SIGNING), scene.now, SETTINGS).found
    assert (state.facts["decision"], state.unsigned) == (None, False)
    assert scene.objects[SILO_AGENT]


CHANGES: dict[str, Any] = {
    "silo": "silo-south/south",
    "proposal": "ab" * 32,
    "decision": "Admitted",
    "objections": [],
    "decidedBy": "somebody",
    "decidedAt": "2026-03-01T11:00:00Z",
    "time": "2026-02-01T12:00:00Z",
    "keyId": "0" * 16,
    "signature": "A" * 86 + "==",
}


def test_every_field_of_a_decision_is_among_the_changes() -> None:
    assert {field.alias for field in Decision.model_fields.values()} == set(CHANGES)


@given(st.sets(st.sampled_from(sorted(CHANGES)), min_size=1), st.booleans())
def test_any_changed_field_of_a_signed_decision_is_found_and_signed_anew(
    names: set[str], removed: bool
) -> None:
    scene = World(agent(), silo({"manualApproval": True}))
    scene.reconcile()
    approve(scene, "Refused", by="dr.meyer", time="2026-03-01T12:00:30Z")
    scene.reconcile()
    before = copy.deepcopy(scene.agent["status"]["decision"])
    assert set(before) == set(CHANGES)
    forged: Object = {
        name: CHANGES[name] if name in names else value
        for name, value in before.items()
        if not (removed and name in names)
    }
    with pytest.raises(Problem, match=r"^(signature-invalid|malformed): "):
        read_decision(forged, KEY)
    scene.agent["status"]["decision"] = forged
    scene.reconcile()
    assert scene.agent["status"]["decision"] == before, "the signature of the same words is the same"
