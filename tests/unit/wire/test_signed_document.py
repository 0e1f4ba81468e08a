"""Signed statements in JSON lie in objects of the API, and nothing of them can be changed unseen."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.canonical import canonical_json
from fedsilo.errors import Problem
from fedsilo.wire import DECISION, OFFER, SigningKey, sign_statement, verify_statement
from fedsilo.wire.signed_document import MAX_INTEGER, MAX_STATEMENT_BYTES
from tests.unit.wire.examples import refusal

KEY = SigningKey.generate()
FIELDS: dict[str, Any] = {
    "silo": "silo-north/north",
    "decision": "Refused",
    "objections": [{"reason": "PolicyRefused", "message": "für März nicht"}, {"reason": "x", "message": ""}],
    "rounds": 20,
    "manual": True,
}
SIGNED_DECISION = sign_statement(DECISION, FIELDS, KEY)

PLAIN_VALUES = st.recursive(
    st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """The path of every value in it."""
    if path:
        yield path
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(item, *path, key)


def test_what_is_signed_is_verified_and_given_back() -> None:
    assert verify_statement(DECISION, SIGNED_DECISION, KEY.verify_key) == FIELDS
    assert SIGNED_DECISION["keyId"] == KEY.verify_key.key_id


def test_what_an_api_server_makes_of_it_is_the_same_statement() -> None:
    reordered = dict(reversed(SIGNED_DECISION.items())) | {"rounds": 20.0, "decidedBy": None}
    assert verify_statement(DECISION, reordered, KEY.verify_key)["decision"] == "Refused"


@given(st.data())
def test_any_value_that_is_changed_is_found(data: st.DataObject) -> None:
    changed = copy.deepcopy(SIGNED_DECISION)
    *path, last = data.draw(st.sampled_from(list(places(changed))))
    holder: Any = changed
    for key in path:
        holder = holder[key]
    before = holder[last]
    after = data.draw(PLAIN_VALUES)
    if data.draw(st.booleans()):
        del holder[last]
    else:
        # JSON tells true from 1, and Python does not.
        if json.dumps(after) == json.dumps(before):
            return
        holder[last] = after
    with pytest.raises(Problem, match=r"^(signature-invalid|malformed): "):
        verify_statement(DECISION, changed, KEY.verify_key)


@given(st.dictionaries(st.text("silo", min_size=1), PLAIN_VALUES, max_size=4))
def test_anything_plain_can_be_signed_and_nothing_added(fields: dict[str, Any]) -> None:
    statement = sign_statement(OFFER, fields, KEY)
    assert verify_statement(OFFER, json.loads(json.dumps(statement)), KEY.verify_key) == fields
    with refusal("signature-invalid"):
        verify_statement(OFFER, statement | {"more": 1}, KEY.verify_key)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (None, "malformed"),
        ("text", "malformed"),
        ({}, "malformed"),
        (SIGNED_DECISION | {"signature": 7}, "malformed"),
        (SIGNED_DECISION | {"signature": SIGNED_DECISION["signature"] + "\n"}, "malformed"),
        (SIGNED_DECISION | {"signature": "A" * 88}, "malformed"),
        (SIGNED_DECISION | {"signature": "A" * 86 + "=="}, "signature-invalid"),
        (SIGNED_DECISION | {"rounds": 0.5}, "malformed"),
        (SIGNED_DECISION | {"rounds": float("nan")}, "malformed"),
        (SIGNED_DECISION | {"rounds": MAX_INTEGER + 1}, "malformed"),
        (SIGNED_DECISION | {"silo": b"north"}, "malformed"),
        (SIGNED_DECISION | {"silo": "\ud800"}, "malformed"),
        (SIGNED_DECISION | {"objections": [None]}, "malformed"),
        (SIGNED_DECISION | {"objections": [[[[[[[[]]]]]]]]}, "malformed"),
        (SIGNED_DECISION | {"silo": "x" * MAX_STATEMENT_BYTES}, "too-long"),
        (SIGNED_DECISION | {"keyId": "0" * 16}, "signature-invalid"),
    ],
)
def test_what_is_no_statement_is_refused(statement: Any, code: str) -> None:
    with refusal(code):
        verify_statement(DECISION, statement, KEY.verify_key)


def test_a_statement_is_of_one_key_and_one_domain() -> None:
    with refusal("signature-invalid"):
        verify_statement(OFFER, SIGNED_DECISION, KEY.verify_key)
    with refusal("signature-invalid"):
        verify_statement(DECISION, SIGNED_DECISION, SigningKey.generate().verify_key)


def test_what_names_another_key_is_refused_although_the_signature_holds() -> None:
    """Nobody may be told that a key signed which did not."""
    other = SigningKey.generate()
    both = sign_statement(DECISION, FIELDS, other)
    message = {name: value for name, value in both.items() if name != "signature"}
    forged = both | {"signature": base64.b64encode(KEY.sign(DECISION, canonical_json(message))).decode()}
    with refusal("signature-invalid"):
        verify_statement(DECISION, forged, KEY.verify_key)
