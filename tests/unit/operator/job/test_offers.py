"""A job asks only silos whose offer is their own word."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.wire import OFFER, sign_statement
from fedsilo_operator.objects import CONFIG_MAP, SILO_KIND
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import EAST, KEYS, NORTH, SOUTH, published_offer, silo


def publish(harness: JobHarness, **status: Any) -> None:
    """Somebody writes the status of north's Silo."""
    content = harness.cluster.peek(SILO_KIND, NORTH)
    harness.cluster.put(content | {"status": content["status"] | status}, "somebody")


def admitted_harness() -> JobHarness:
    """Both silos admit the job, which is suspended, so that it has not started."""
    harness = JobHarness()
    harness.change(suspend=True)
    harness.settle()
    harness.admit(NORTH, SOUTH)
    harness.settle()
    return harness


def offer_of(harness: JobHarness) -> Object:
    found: Object = harness.cluster.peek(SILO_KIND, NORTH)["status"]["offer"]
    return found


def accepted_condition(harness: JobHarness) -> tuple[str, str]:
    """Reason and message of the job's condition, which goes on as soon as nothing is wrong."""
    harness.change(suspend=False)
    harness.settle()
    status, reason, message = harness.condition("Accepted") or ("", "", "")
    assert (status == "False") == (not harness.cluster.objects(CONFIG_MAP)), "nothing starts on such an offer"
    return reason, message


def test_a_job_starts_with_signed_offers() -> None:
    assert accepted_condition(admitted_harness()) == ("Accepted", "The specification can be run.")


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"minSamplesPerClass": 1}},
        {"datasets": []},
        {"datasets": [{"name": "scans", "classes": 3}]},
        {"publicKey": KEYS[SOUTH].verify_key.to_text()},
        {"silo": "silo-south/south"},
        {"time": "2020-01-01T00:00:00Z"},
        {"keyId": "0" * 16},
        {"signature": "A" * 86 + "=="},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_offer_that_was_changed_does_not_count(changes: dict[str, Any]) -> None:
    harness = admitted_harness()
    publish(harness, offer=offer_of(harness) | changes)
    reason, message = accepted_condition(harness)
    assert reason == "TrustBroken"
    assert message.startswith("Silo silo-north/north: the signed offer in status.offer does not count: ")
    assert message.endswith("find out who wrote it.")


@pytest.mark.parametrize(
    "changes", [{"silo": "silo-south/south"}, {"publicKey": KEYS[SOUTH].verify_key.to_text()}]
)
def test_an_offer_of_another_silo_or_key_does_not_count_although_the_key_signed_it(
    changes: dict[str, str],
) -> None:
    """Silos of one namespace share a key."""
    harness = admitted_harness()
    fields = {name: value for name, value in offer_of(harness).items() if name not in ("keyId", "signature")}
    publish(harness, offer=sign_statement(OFFER, fields | changes, KEYS[NORTH]))
    reason, message = accepted_condition(harness)
    assert reason == "TrustBroken"
    ((name, said),) = changes.items()
    assert f"{name} is {said}; must be " in message


def test_an_offer_by_another_key_does_not_count() -> None:
    harness = admitted_harness()
    publish(harness, offer=published_offer(silo(NORTH, key=False), EAST)["offer"])
    assert accepted_condition(harness)[0] == "TrustBroken"


@pytest.mark.parametrize(
    ("changes", "reason"), [({"greeting": "hello"}, "Accepted"), ({"datasets": "all"}, "Unreadable")]
)
def test_an_offer_of_a_later_version_counts_as_far_as_it_can_be_read(
    changes: dict[str, str], reason: str
) -> None:
    harness = admitted_harness()
    fields = {name: value for name, value in offer_of(harness).items() if name not in ("keyId", "signature")}
    publish(harness, offer=sign_statement(OFFER, fields | changes, KEYS[NORTH]))
    assert accepted_condition(harness)[0] == reason


def test_a_silo_of_an_earlier_version_is_waited_for() -> None:
    harness = admitted_harness()
    publish(harness, offer=None)
    text = "Silo silo-north/north has not signed its offer yet; its silo controller is about to do it."
    assert accepted_condition(harness) == ("KeyPending", text)
    gone = {
        "type": "Ready",
        "status": "False",
        "reason": "KeyMissing",
        "message": "Secret x is gone. Restore it.",
    }
    publish(harness, offer=None, conditions=[gone])
    reason, message = accepted_condition(harness)
    assert reason == "SiloNotReady"
    assert message.endswith("and the job waits until it has. Secret x is gone. Restore it.")
    publish(harness, **published_offer(silo(NORTH, key=False)), conditions=[])
    assert accepted_condition(harness)[0] == "Accepted"


def test_a_job_that_has_started_needs_no_offer() -> None:
    harness = JobHarness().running()
    publish(harness, offer=None)
    harness.settle()
    assert harness.phase() == "Running"
