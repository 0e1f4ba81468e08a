"""The proof that a request comes from a silo: `Authorization: Fedsilo <base64url of a sealed map>`.

It binds method, path with query, and time; and the body where that is small. A streamed upload carries its
own signature, so its proof binds no body. A proof can be used again until it expires: every request of the
protocol may be repeated without harm, and TLS keeps others from reading one.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping

from fedsilo.errors import Problem
from fedsilo.wire.envelope import seal, split_envelope
from fedsilo.wire.fields import PROTOCOL, FieldReader, check_protocol, unpack_map
from fedsilo.wire.keys import REQUEST, SigningKey, VerifyKey

CLOCK_SKEW_SECONDS = 30
MAX_LIFETIME_SECONDS = 300
MAX_PROOF_BYTES = 4096
MAX_PATH_CHARACTERS = 2048

_SCHEME = "Fedsilo "
_KEYS = ("protocol", "job", "sender", "keyId", "method", "path", "body", "issued", "expires")


def sign_request(
    key: SigningKey,
    *,
    job: str,
    sender: str,
    method: str,
    path: str,
    body: bytes | None,
    now: float,
    lifetime: int = 60,
) -> str:
    """The value of the `Authorization` header.

    :param path: as it goes over the wire, with the query.
    :param body: the bytes to bind, or None for a streamed body or none.
    :param now: seconds since 1970.
    :param lifetime: in seconds, at most `MAX_LIFETIME_SECONDS`.
    :raises Problem: as `verify_request`; what is signed can be verified.
    """
    fields: dict[str, object] = {
        "protocol": PROTOCOL,
        "job": job,
        "sender": sender,
        "keyId": key.verify_key.key_id,
        "method": method,
        "path": path,
        "body": _body_digest(body),
        "issued": math.floor(now),
        "expires": math.ceil(now + lifetime),
    }
    _read(fields)
    proof = base64.urlsafe_b64encode(seal(REQUEST, fields, key)).decode()
    return _SCHEME + proof.rstrip("=")


def claimed_sender(value: str) -> str:
    """Who a header value says it is from, before anything of it is checked: only to look up that one's key.

    :raises Problem: `malformed`, `unsupported`, `truncated` or `too-long`.
    """
    header, _ = split_envelope(REQUEST, _decode(value), MAX_PROOF_BYTES)
    return _read(unpack_map(REQUEST, header, depth=1)).text("sender")


def verify_request(
    value: str,
    keys: Mapping[str, VerifyKey],
    *,
    job: str,
    method: str,
    path: str,
    body: bytes | None,
    now: float,
) -> str:
    """Check a header value against the request that it came with.

    :param keys: the keys of the job's silos, by sender.
    :param body: the bytes that must have been bound, or None for a streamed body or none.
    :returns: the sender.
    :raises Problem: `malformed`, `unsupported`, `unknown-sender`, `signature-invalid`, `wrong-job`,
        `proof-expired`, `truncated` or `too-long`.
    """
    header, signature = split_envelope(REQUEST, _decode(value), MAX_PROOF_BYTES)
    # Which key must have signed is known only from what is signed; nothing else is used until it is verified.
    fields = _read(unpack_map(REQUEST, header, depth=1))
    sender = fields.text("sender")
    key = keys.get(sender)
    if key is None:
        raise Problem(
            "unknown-sender", f"{REQUEST}: sender is {sender}; it is not one of the silos of job {job}"
        )
    key.verify(REQUEST, header, signature)
    if fields.text("job") != job:
        raise fields.refuse("job", job, "wrong-job")
    for name, wanted in (("keyId", key.key_id), ("method", method), ("path", path)):
        if fields.text(name, MAX_PATH_CHARACTERS) != wanted:
            raise fields.refuse(name, wanted, "signature-invalid")
    bound = _body_digest(body)
    if fields.binary("body", len(bound)) != bound:
        raise fields.refuse("body", bound.hex(), "signature-invalid")
    _check_time(fields.integer("issued"), fields.integer("expires"), now)
    return sender


def _body_digest(body: bytes | None) -> bytes:
    return b"" if body is None else hashlib.sha256(body).digest()


def _decode(value: str) -> bytes:
    scheme, proof = value[: len(_SCHEME)], value[len(_SCHEME) :]
    if scheme != _SCHEME:
        raise Problem("malformed", f"{REQUEST}: Authorization is {value[:20]!r}; send '{_SCHEME}<base64url>'")
    try:
        data = base64.b64decode(proof + "=" * (-len(proof) % 4), altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != proof:
        raise Problem("malformed", f"{REQUEST}: proof {proof[:20]!r}; encode it as base64url without padding")
    return data


def _read(value: dict[str, object]) -> FieldReader:
    check_protocol(REQUEST, value)
    fields = FieldReader(REQUEST, value, _KEYS)
    fields.integer("protocol", PROTOCOL, PROTOCOL)
    for key in ("job", "sender", "keyId", "method"):
        fields.text(key)
    fields.text("path", MAX_PATH_CHARACTERS)
    if value["body"] != b"":
        fields.binary("body", 32)
    issued = fields.integer("issued")
    fields.integer("expires", issued, issued + MAX_LIFETIME_SECONDS + 1)
    return fields


def _check_time(issued: int, expires: int, now: float) -> None:
    if not issued - CLOCK_SKEW_SECONDS <= now <= expires + CLOCK_SKEW_SECONDS:
        raise Problem(
            "proof-expired",
            f"{REQUEST}: valid from {issued} to {expires}, and it is {now:.0f} here; sign again, and set"
            f" the clock if it is more than {CLOCK_SKEW_SECONDS} s off",
        )
