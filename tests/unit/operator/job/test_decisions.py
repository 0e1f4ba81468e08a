"""A job starts with the silos' own words, and with nobody else's."""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.api.agent import Decision, Proposal
from fedsilo.api.observed import Object
from fedsilo.api.proposal import proposal_digest
from fedsilo.silo.decision import read_decision
from fedsilo.wire import DECISION, sign_statement
from fedsilo_operator.job import decisions
from fedsilo_operator.objects import CONFIG_MAP, SILO_KIND, Ref, ref_of
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import EAST, KEYS, NORTH, SOUTH, manifest, silo, word

ADMITTED_CONDITION = {
    "type": "Admitted",
    "status": "True",
    "reason": "Admitted",
    "message": "Silo north admits the job.",
}


def asked_harness() -> JobHarness:
    """South has admitted the job, and north is asked."""
    harness = JobHarness()
    harness.settle()
    harness.admit(SOUTH)
    harness.settle()
    return harness


def claim(harness: JobHarness, **status: Any) -> None:
    """Somebody writes that north admits the job."""
    content = {"phase": "Admitted", "message": "admits", "conditions": [ADMITTED_CONDITION]}
    harness.cluster.put(harness.agent(NORTH) | {"status": content | status}, "somebody")
    harness.settle()


def objection(harness: JobHarness) -> tuple[str, str]:
    """Reason and message of a job that has not started."""
    status, reason, message = harness.condition("Admitted") or ("", "", "")
    assert status == "False"
    assert not harness.cluster.objects(CONFIG_MAP), "nothing starts"
    assert harness.agent(SOUTH)["spec"]["suspend"] is True
    return reason, message


def resigned_decision(document: Object, **changes: Any) -> Object:
    """A decision with other content, by the silo's true key."""
    fields = {name: value for name, value in document.items() if name not in ("keyId", "signature")}
    return sign_statement(DECISION, fields | changes, KEYS[NORTH])


def test_an_admission_without_a_signature_is_waited_for() -> None:
    harness = asked_harness()
    claim(harness)
    assert objection(harness) == ("Admitting", "Silo north: admits the job, and its signature is awaited.")
    (entry,) = (entry for entry in harness.job["status"]["silos"] if entry["name"] == "north")
    assert entry["message"] == "admits the job, and its signature is awaited."
    harness.admit(NORTH)
    harness.settle()
    assert harness.phase() == "Starting"


def test_what_prevents_the_signature_is_named() -> None:
    harness = asked_harness()
    gone = {
        "type": "Ready",
        "status": "False",
        "reason": "KeyMissing",
        "message": "Secret x is gone. Restore it.",
    }
    offer = harness.cluster.peek(SILO_KIND, NORTH)
    harness.cluster.put(offer | {"status": offer["status"] | {"conditions": [gone]}}, "fedsilo-operator")
    claim(harness)
    reason, message = objection(harness)
    assert reason == "SiloNotReady"
    assert message.endswith("its signature is awaited. Secret x is gone. Restore it.")


CHANGES: dict[str, Any] = {
    "silo": "silo-south/south",
    "proposal": "ab" * 32,
    "decision": "Refused",
    "objections": [{"reason": "PolicyRefused", "message": "no"}],
    "decidedBy": "somebody",
    "decidedAt": "2026-03-01T11:00:00Z",
    "time": "2026-02-01T12:00:00Z",
    "keyId": "0" * 16,
    "signature": "A" * 86 + "==",
}


def test_every_field_of_a_decision_is_changed_below() -> None:
    assert {field.alias for field in Decision.model_fields.values()} == set(CHANGES)


@settings(max_examples=40)
@given(st.sets(st.sampled_from(sorted(CHANGES)), min_size=1), st.booleans())
def test_a_decision_of_which_anything_was_changed_does_not_count(names: set[str], removed: bool) -> None:
    harness = asked_harness()
    told = word(harness.agent(NORTH), decidedBy="dr.meyer", decidedAt="2026-03-01T12:00:00Z")
    for name in names:
        if removed:
            del told["decision"][name]
        else:
            told["decision"][name] = CHANGES[name]
    claim(harness, **told)
    reason, message = objection(harness)
    assert reason == "TrustBroken"
    assert f"status.decision of SiloAgent {ref_of(harness.agent(NORTH))} does not count: " in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"silo": "silo-south/south"},
            "is that of silo silo-south/south, not of silo-north/north; find out who",
        ),
        ({"proposal": "ab" * 32}, "is about proposal abababababab, and status.proposal is "),
        ({"decision": "Refused"}, "is Refused, and the condition Admitted is True; find out who changed it."),
    ],
)
def test_the_silo_s_word_about_something_else_does_not_count(changes: dict[str, str], said: str) -> None:
    harness = asked_harness()
    told = word(harness.agent(NORTH))
    claim(harness, **told | {"decision": resigned_decision(told["decision"], **changes)})
    reason, message = objection(harness)
    assert reason == "TrustBroken"
    assert said in message


def test_the_word_of_another_silo_does_not_count() -> None:
    harness = asked_harness()
    claim(harness, **word(harness.agent(SOUTH)))
    reason, message = objection(harness)
    assert reason == "TrustBroken"
    assert "the signature is not by key" in message


def test_the_word_about_an_earlier_job_of_the_name_does_not_count() -> None:
    harness = asked_harness()
    earlier = copy.deepcopy(harness.agent(NORTH))
    earlier["spec"]["job"]["uid"] = "another"
    claim(harness, **word(earlier))
    reason, message = objection(harness)
    assert reason == "TrustBroken"
    assert "is about another uid than the operator wrote into the agent" in message


@pytest.mark.parametrize(
    ("place", "name", "value", "field"),
    [
        (
            "trust",
            "caCertificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "authority",
        ),
        ("job", "name", "letters", "name"),
    ],
)
def test_what_a_silo_honestly_decided_about_a_changed_agent_does_not_count(
    place: str, name: str, value: str, field: str
) -> None:
    harness = asked_harness()
    changed = harness.agent(NORTH)
    changed["spec"][place][name] = value
    harness.cluster.put(changed | {"status": None}, "somebody")
    claim(harness, **word(harness.agent(NORTH)))
    reason, message = objection(harness)
    assert reason == "TrustBroken"
    assert (
        f"is about another {field} than the operator wrote into the agent; find out who changed it" in message
    )


@pytest.mark.parametrize("name", ["url", "address", "trainerImage"])
def test_a_proposal_that_was_changed_under_its_decision_is_found(name: str) -> None:
    harness = asked_harness()
    told = word(harness.agent(NORTH))
    told["proposal"][name] += "0"
    claim(harness, **told)
    assert objection(harness)[0] == "TrustBroken"


def test_images_are_the_silo_s_own_choice() -> None:
    harness = asked_harness()
    told = word(harness.agent(NORTH))
    told["proposal"]["guardImage"] = "registry.north.example/guard:2"
    digest = proposal_digest(Proposal.model_validate(told["proposal"]))
    claim(harness, **told | {"decision": resigned_decision(told["decision"], proposal=digest)})
    assert harness.phase() == "Starting"


def test_what_a_later_version_has_signed_is_named_as_such() -> None:
    harness = asked_harness()
    told = word(harness.agent(NORTH))
    claim(harness, **told | {"decision": resigned_decision(told["decision"], decision="Deferred")})
    reason, message = objection(harness)
    assert reason == "Unreadable"
    assert message.endswith("run a newer version of the operator.")


def test_a_real_objection_goes_before_what_is_merely_awaited() -> None:
    harness = JobHarness(manifest((NORTH, SOUTH, EAST)), [silo(NORTH), silo(SOUTH), silo(EAST)])
    harness.settle()
    harness.refuse(SOUTH, "ApprovalPending", "Silo south: a person has to approve.")
    claim(harness)
    assert objection(harness)[0] == "ApprovalPending"
    harness.refuse(EAST)
    harness.settle()
    assert objection(harness)[0] == "PolicyRefused"


def test_a_job_that_an_earlier_version_has_started_goes_on() -> None:
    harness = JobHarness().running()
    for ref in (NORTH, SOUTH):
        agent = harness.agent(ref)
        for name in ("decision", "proposal"):
            agent["status"].pop(name)
        harness.cluster.put(agent, "fedsilo-operator")
    harness.settle()
    assert harness.phase() == "Running"
    assert [harness.agent(ref)["spec"]["suspend"] for ref in (NORTH, SOUTH)] == [False, False]
    harness.cluster.remove(CONFIG_MAP, Ref("federation", "digits-aggregator"))
    harness.settle()
    assert harness.phase() == "Running"


def test_a_signature_is_verified_once() -> None:
    decisions._read.cache_clear()
    harness = asked_harness()
    with patch("fedsilo_operator.job.decisions.read_decision", wraps=read_decision) as verified:
        harness.admit(NORTH)
        for _ in range(5):
            harness.plan()
    assert verified.call_count == 1, "south's was verified before"
