"""Statements are what an institution says and signs for others to read in an object of the API, and to pass on.

An API server keeps the fields of an object and not their bytes, so a statement is the one signed thing that a reader
encodes again. It therefore holds only what has one canonical JSON: no fractions, no bytes, few levels.
"""

from __future__ import annotations

import base64
import reprlib
from collections.abc import Mapping
from typing import Any

from fedsilo.canonical import canonical_json
from fedsilo.errors import Problem
from fedsilo.wire.keys import SIGNATURE_BYTES, SigningKey, VerifyKey

DECISION = "fedsilo/decision/v1"
OFFER = "fedsilo/offer/v1"
ROTATION, SUCCESSION = "fedsilo/rotation/v1", "fedsilo/succession/v1"
LEAVING = "fedsilo/leaving/v1"

KEY_ID, SIGNATURE = "keyId", "signature"

MAX_STATEMENT_BYTES = 1 << 18
MAX_INTEGER = (1 << 53) - 1  # beyond it, not every reader of JSON has integers

_MAX_DEPTH = 8


def sign_statement(domain: str, fields: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """The fields with `keyId` and `signature`.

    :raises Problem: `malformed` or `too-long`; what is signed can be verified.
    """
    statement = {**fields, KEY_ID: key.verify_key.key_id}
    signature = key.sign(domain, _message(domain, statement))
    return {**statement, SIGNATURE: base64.b64encode(signature).decode()}


def verify_statement(domain: str, statement: object, key: VerifyKey) -> dict[str, Any]:
    """The fields of a statement, without `keyId` and `signature`, if this key has signed all of it.

    :raises Problem: `malformed`, `too-long` or `signature-invalid`.
    """
    if not isinstance(statement, Mapping):
        raise Problem("malformed", f"{domain}: {reprlib.repr(statement)} is not an object; send a statement")
    unsigned = {name: value for name, value in statement.items() if name != SIGNATURE}
    message = _message(domain, unsigned)
    key.verify(domain, message, _signature(domain, statement.get(SIGNATURE)))
    if unsigned.pop(KEY_ID, None) != key.key_id:
        found = reprlib.repr(statement.get(KEY_ID))
        raise Problem("signature-invalid", f"{domain}: {KEY_ID} is {found}; it must be {key.key_id}")
    return unsigned


def _message(domain: str, fields: Mapping[str, Any]) -> bytes:
    if not _is_plain(fields, _MAX_DEPTH):
        raise Problem(
            "malformed",
            f"{domain}: not an object of texts, whole numbers, booleans, lists and objects, in {_MAX_DEPTH} levels",
        )
    try:
        message = canonical_json(fields)
    except ValueError as error:
        raise Problem("malformed", f"{domain}: has no canonical JSON ({error}); write Unicode text") from None
    if len(message) > MAX_STATEMENT_BYTES:
        raise Problem(
            "too-long", f"{domain}: {len(message)} bytes; {MAX_STATEMENT_BYTES} is the most it may have"
        )
    return message


def _is_plain(value: object, depth: int) -> bool:
    """Whether every reader of JSON understands the same by it."""
    if isinstance(value, Mapping):
        return depth > 0 and all(
            type(k) is str and (v is None or _is_plain(v, depth - 1)) for k, v in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    if isinstance(value, float) and not value.is_integer():
        return False
    if isinstance(value, int | float):
        return abs(value) <= MAX_INTEGER
    return isinstance(value, str)


def _signature(domain: str, text: object) -> bytes:
    try:
        signature = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        signature = b""
    if len(signature) != SIGNATURE_BYTES or base64.b64encode(signature).decode() != text:
        raise Problem(
            "malformed",
            f"{domain}: {SIGNATURE} is {reprlib.repr(text)}; send the base64 of its {SIGNATURE_BYTES} bytes",
        )
    return signature
