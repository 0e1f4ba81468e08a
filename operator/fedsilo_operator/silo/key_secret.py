"""The Secret with a silo's signing keys: the newest in one entry, earlier ones beside it while a job ends with them.

Who signs knows by which public key the signature will be checked, and takes the key of that one, whatever the entry. So
one write, of all entries together, replaces a key under everybody who uses it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Any

from fedsilo.api.observed import Object
from fedsilo.errors import Problem
from fedsilo.wire import SigningKey
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import MANAGED_BY, MANAGER, SECRET, Ref, labels_of, ref_of

ENTRY = "key.pem"
"""Entry of the newest key: Ed25519 as PKCS #8 PEM."""

_SUFFIX = ".pem"


def secret(namespace: str, key: SigningKey) -> Object:
    """The Secret of a new key. All Silos of a namespace share it: they are one institution."""
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": {"name": SIGNING_KEY, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "type": "Opaque",
        "data": {ENTRY: _encoded_key(key)},
    }


def is_own(observed: Object) -> bool:
    """Whether the operator has made it; else it is the institution's, which changes it itself."""
    return labels_of(observed).get(MANAGED_BY) == MANAGER


def newest_key(observed: Object, name: Ref) -> SigningKey:
    """The newest signing key in a silo's Secret.

    :raises Problem: `malformed` when there is none.
    """
    text = (observed.get("data") or {}).get(ENTRY)
    if text is None:
        raise Problem("malformed", f"Secret {name} has no entry {ENTRY}")
    return _decoded_key(text, f"Secret {name}, entry {ENTRY}")


def key_of(observed: Object, public_key: str) -> SigningKey | None:
    """The key with this public half, in whichever entry."""
    for key in _keys(observed).values():
        if key.verify_key.to_text() == public_key:
            return key
    return None


def renewal_change(observed: Object, key: SigningKey) -> Object:
    """The change that makes a key the newest and keeps the one before."""
    before = newest_key(observed, ref_of(observed))
    return _change(observed, {ENTRY: _encoded_key(key), _entry(before): _encoded_key(before)})


def pruning_change(observed: Object, needed: Collection[str]) -> Object | None:
    """The change that removes replaced keys but for those with these public halves; None where there are no others."""
    idle = {
        entry: None
        for entry, key in _keys(observed).items()
        if entry == _entry(key) and key.verify_key.to_text() not in needed
    }
    return _change(observed, idle) if idle else None


def _keys(observed: Object) -> dict[str, SigningKey]:
    found = {}
    for entry, text in (observed.get("data") or {}).items():
        try:
            if entry.endswith(_SUFFIX):
                found[entry] = _decoded_key(text, entry)
        except Problem:
            continue  # what is no key is nobody's
    return found


def _entry(key: SigningKey) -> str:
    """Entry of a key that was replaced."""
    return f"{key.verify_key.key_id}{_SUFFIX}"


def _change(observed: Object, data: dict[str, Any]) -> Object:
    """Bound to the version that was read: two that change it at once do not mix."""
    names = ("name", "namespace", "uid", "resourceVersion")
    metadata = {name: observed["metadata"][name] for name in names}
    return {"apiVersion": SECRET.api, "kind": SECRET.name, "metadata": metadata, "data": data}


def _encoded_key(key: SigningKey) -> str:
    return base64.b64encode(key.to_pem()).decode()


def _decoded_key(text: str, source: str) -> SigningKey:
    try:
        pem = base64.b64decode(text, validate=True)
    except binascii.Error:
        pem = b""
    return SigningKey.from_pem(pem, source)
