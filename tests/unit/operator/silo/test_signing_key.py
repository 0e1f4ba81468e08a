from __future__ import annotations

import base64
from typing import Any

import pytest

from fedsilo.api.observed import Object, condition
from fedsilo.wire import SigningKey
from fedsilo_operator.plan import CreateAction, Plan
from fedsilo_operator.silo.key_secret import secret
from fedsilo_operator.silo.signing_key import KeyObservation, reconcile
from tests.unit.operator.silo.harness import START, silo

KEY, OTHER_KEY = SigningKey.from_seed(b"k" * 32), SigningKey.from_seed(b"o" * 32)
PUBLIC_KEY = KEY.verify_key.to_text()


def a_silo(published: str | None = None) -> Object:
    content = silo()
    content["status"] = {} if published is None else {"publicKey": published}
    return content


def key_plan(content: Object, found: Object | None) -> Plan:
    return reconcile(KeyObservation(content, found), START, lambda: KEY)


def ready_condition(found: Plan) -> tuple[str, str, str]:
    assert found.status is not None
    only, _ = found.status["conditions"]
    return only["status"], only["reason"], only["message"]


def test_a_silo_without_a_key_gets_one_and_publishes_what_was_really_stored() -> None:
    made = key_plan(a_silo(), None)
    (action,) = made.actions
    assert isinstance(action, CreateAction)
    assert action.object["metadata"]["name"] == "fedsilo-signing-key"
    assert made.status is None
    assert made.requeue_after is not None
    assert made.requeue_after < 1
    # Another operator, or another Silo of the namespace, was first.
    published = key_plan(a_silo(), secret("silo-north", OTHER_KEY))
    assert published.status is not None
    assert published.status["publicKey"] == OTHER_KEY.verify_key.to_text()
    assert ready_condition(published)[:2] == ("True", "KeyReady")


def test_the_secret_holds_the_key_as_pkcs8() -> None:
    pem = base64.b64decode(secret("silo-north", KEY)["data"]["key.pem"])
    assert SigningKey.from_pem(pem, "test").verify_key == KEY.verify_key
    assert "ownerReferences" not in secret("silo-north", KEY)["metadata"]


def test_a_silo_whose_key_is_published_settles() -> None:
    content = a_silo()
    first = key_plan(content, secret("silo-north", KEY))
    content["status"] = first.status
    again = key_plan(content, secret("silo-north", KEY))
    assert again.settled
    assert again.requeue_after == 600


def test_a_key_that_is_gone_is_never_replaced() -> None:
    found = key_plan(a_silo(PUBLIC_KEY), None)
    assert found.actions == ()
    assert found.status is not None
    assert found.status["publicKey"] == PUBLIC_KEY
    assert ready_condition(found) == (
        "False",
        "KeyMissing",
        f"Secret silo-north/fedsilo-signing-key is gone, and {PUBLIC_KEY} is published. Restore it, or delete the Silo "
        "and create it again, which ends its part in every job.",
    )
    assert [(event.type, event.reason) for event in found.events] == [("Warning", "KeyMissing")]


def test_a_key_other_than_the_published_one_is_not_published() -> None:
    found = key_plan(a_silo(PUBLIC_KEY), secret("silo-north", OTHER_KEY))
    assert found.status is not None
    assert found.status["publicKey"] == PUBLIC_KEY
    assert ready_condition(found)[:2] == ("False", "KeyInvalid")
    assert OTHER_KEY.verify_key.to_text() in ready_condition(found)[2]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "has no entry key.pem"),
        ({}, "has no entry key.pem"),
        ({"key.pem": "%%%"}, "not an unencrypted Ed25519 key in PKCS #8 PEM"),
        ({"key.pem": base64.b64encode(b"hello").decode()}, "not an unencrypted Ed25519 key in PKCS #8 PEM"),
    ],
)
@pytest.mark.parametrize("published", [None, PUBLIC_KEY])
def test_a_secret_that_holds_no_key_is_left_as_it_is(
    data: dict[str, Any] | None, words: str, published: str | None
) -> None:
    broken = secret("silo-north", KEY) | {"data": data}
    found = key_plan(a_silo(published), broken)
    assert found.actions == ()
    assert found.status is not None
    assert found.status.get("publicKey") == published
    status, reason, message = ready_condition(found)
    assert (status, reason) == ("False", "KeyInvalid")
    assert words in message
    assert ("Restore it" if published else "Delete the Secret, and a new key is made.") in message
    assert "PRIVATE" not in message


def test_a_restored_key_is_ready_again() -> None:
    content = a_silo(PUBLIC_KEY)
    content["status"] = key_plan(content, None).status
    found = key_plan(content, secret("silo-north", KEY))
    assert ready_condition(found)[:2] == ("True", "KeyReady")
    assert [(event.type, event.reason) for event in found.events] == [("Normal", "KeyReady")]


def test_a_silo_that_is_being_deleted_is_left_alone() -> None:
    content = a_silo()
    content["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert key_plan(content, None) == Plan()


def test_the_observed_generation_is_recorded() -> None:
    content = a_silo()
    content["status"] = key_plan(content, secret("silo-north", KEY)).status
    content["metadata"]["generation"] = 2
    content["status"] = key_plan(content, secret("silo-north", KEY)).status
    assert (condition(content, "Ready") or {})["observedGeneration"] == 2
