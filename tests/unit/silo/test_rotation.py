"""How a silo's key changes: only both keys together can say it, and everyone can follow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fedsilo.silo.leaving import read_leaving, sign_leaving
from fedsilo.silo.rotation import keys_since, read_rotation, sign_rotation
from fedsilo.wire import ROTATION, SUCCESSION, SigningKey, sign_statement
from tests.unit.wire.examples import refusal

NORTH = "silo-north/north"
FIRST_KEY, SECOND_KEY, THIRD_KEY = (SigningKey.from_seed(letter * 32) for letter in (b"1", b"2", b"3"))
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TEXT = [key.verify_key.to_text() for key in (FIRST_KEY, SECOND_KEY, THIRD_KEY)]


def rotation(
    previous: SigningKey = FIRST_KEY, key: SigningKey = SECOND_KEY, silo: str = NORTH
) -> dict[str, Any]:
    return sign_rotation(silo, previous, key, NOW)


def test_an_announcement_leads_from_one_key_to_the_next() -> None:
    assert read_rotation(rotation(), NORTH, TEXT[0]) == TEXT[1]
    chain = [rotation(), rotation(SECOND_KEY, THIRD_KEY)]
    assert keys_since(NORTH, TEXT[0], chain) == tuple(TEXT)
    assert keys_since(NORTH, TEXT[1], chain) == tuple(TEXT[1:])
    assert keys_since(NORTH, TEXT[2], chain) == (TEXT[2],)
    assert keys_since(NORTH, TEXT[0], []) == (TEXT[0],)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (rotation(silo="silo-south/south"), "wrong-sender"),
        (rotation(SECOND_KEY, THIRD_KEY), "signature-invalid"),
        (rotation(FIRST_KEY, FIRST_KEY), "malformed"),
        ({**rotation(), "succession": rotation(FIRST_KEY, THIRD_KEY)["succession"]}, "signature-invalid"),
        # The old key names a key that does not agree, as it would to take another silo's.
        (
            sign_statement(
                ROTATION,
                {
                    "succession": sign_statement(
                        SUCCESSION,
                        {"silo": NORTH, "previousKey": TEXT[0], "publicKey": TEXT[1], "time": "x"},
                        THIRD_KEY,
                    )
                },
                FIRST_KEY,
            ),
            "signature-invalid",
        ),
        # The new key agreed to follow upon another.
        (
            sign_statement(
                ROTATION, {"succession": rotation(THIRD_KEY, SECOND_KEY)["succession"]}, FIRST_KEY
            ),
            "wrong-sender",
        ),
        (sign_statement(ROTATION, {"succession": "x"}, FIRST_KEY), "unsupported"),
        (sign_statement(ROTATION, {"succession": {}}, FIRST_KEY), "malformed"),
        (
            sign_statement(ROTATION, {"succession": rotation()["succession"], "more": 1}, FIRST_KEY),
            "unsupported",
        ),
        (
            sign_statement(
                ROTATION,
                {"succession": sign_statement(SUCCESSION, {"publicKey": TEXT[1]}, SECOND_KEY)},
                FIRST_KEY,
            ),
            "unsupported",
        ),
        ({"succession": rotation()["succession"]}, "malformed"),
        ("x", "malformed"),
    ],
)
def test_nothing_but_both_keys_announces_a_key(said: Any, code: str) -> None:
    with refusal(code):
        read_rotation(said, NORTH, TEXT[0])


@pytest.mark.parametrize(
    "chain",
    [
        [rotation(), rotation(FIRST_KEY, THIRD_KEY)],
        [rotation(), rotation(THIRD_KEY, SECOND_KEY)],
        [rotation(), {}],
        [rotation(), rotation(SECOND_KEY, THIRD_KEY, silo="silo-south/south")],
    ],
)
def test_a_chain_holds_as_a_whole_or_not_at_all(chain: list[Any]) -> None:
    with refusal("wrong-sender"):
        keys_since(NORTH, TEXT[0], chain)


def test_a_silo_says_itself_that_it_leaves() -> None:
    said = sign_leaving(NORTH, "0123456789abcdef", NOW, FIRST_KEY)
    assert read_leaving(said, NORTH, TEXT[0]) == ("0123456789abcdef", "2026-03-01T12:00:00Z")
    with refusal("signature-invalid"):
        read_leaving(said, NORTH, TEXT[1])
    with refusal("signature-invalid"):
        read_leaving(said | {"hub": "fedcba9876543210"}, NORTH, TEXT[0])
    with refusal("wrong-sender"):
        read_leaving(sign_leaving("silo-south/south", "0123456789abcdef", NOW, FIRST_KEY), NORTH, TEXT[0])
    with refusal("signature-invalid"):
        read_leaving(rotation(), NORTH, TEXT[0])
