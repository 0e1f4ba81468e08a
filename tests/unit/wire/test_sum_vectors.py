"""The committed vectors of a secure sum, computed as another implementation would: from the page, without ours."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsilo.wire import VerifyKey
from tests.paths import ROOT
from tests.vectors import sums

SUM: dict[str, Any] = json.loads((ROOT / "tests" / "vectors" / "vectors.json").read_text())["secureSum"]
CONTEXT = SUM["context"].encode()
MEMBERS = dict(json.loads(SUM["context"])["members"])
SURVIVORS = list(SUM["vectors"])


def stream(key: bytes, count: int) -> np.ndarray:
    """The key stream of ChaCha20 with a nonce of zeros, as little-endian 64-bit integers."""
    return np.frombuffer(
        Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * count)), "<u8"
    )


def in_common(silo: str, other: str, sent: bytes) -> bytes:
    """The key of the mask that two silos have in common."""
    own = X25519PrivateKey.from_private_bytes(bytes.fromhex(SUM["secrets"][silo]["mask key"]))
    theirs = bytes.fromhex(SUM["keys"][other])[:32]
    publics = sorted([own.public_key().public_bytes_raw(), theirs])
    info = b"\0".join([b"fedsilo/secure-aggregation/v1", b"mask", *publics]) + CONTEXT + sent
    return HKDF(SHA256(), 32, None, info).derive(own.exchange(X25519PublicKey.from_public_bytes(theirs)))


def masked_vector(silo: str, sent: bytes) -> np.ndarray:
    """A silo's vector under all of its masks."""
    seed = bytes.fromhex(SUM["secrets"][silo]["seed"])
    vector = numbers(SUM["vectors"][silo])
    total: np.ndarray = vector + stream(
        hashlib.sha256(b"fedsilo/own-mask/v2\0" + seed + CONTEXT).digest(), vector.size
    )
    places = list(MEMBERS)
    for other in places:
        if other != silo:
            mask = stream(in_common(silo, other, sent), vector.size)
            total = total + mask if places.index(silo) < places.index(other) else total - mask
    return total


def numbers(texts: list[str]) -> np.ndarray:
    return np.array([int(text) for text in texts], np.uint64)


def test_the_digest_of_a_broadcast_leaves_out_messages_of_the_sum_and_settings_of_one_silo() -> None:
    told = SUM["broadcast"]
    common = {
        "blobs": {name: digest for name, digest in told["blobs"].items() if not name.startswith("secure.")},
        "settings": {name: value for name, value in told["settings"].items() if name not in told["own"]},
    }
    text = json.dumps(common, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == told["digest"]


@pytest.mark.parametrize("silo", SURVIVORS)
def test_a_masked_vector_follows_from_the_secrets_and_what_was_sent(silo: str) -> None:
    sent = bytes.fromhex(SUM["broadcast"]["digest"])
    assert masked_vector(silo, sent).tolist() == numbers(SUM["masked"][silo]).tolist()


def test_a_silo_that_was_sent_something_else_has_other_masks() -> None:
    apart = SUM["maskedForAnotherBroadcast"]
    assert (
        masked_vector(SURVIVORS[0], bytes.fromhex(apart["digest"])).tolist()
        == numbers(apart[SURVIVORS[0]]).tolist()
    )
    assert apart[SURVIVORS[0]] != SUM["masked"][SURVIVORS[0]]


def test_keys_and_confirmations_are_signed_over_the_context() -> None:
    for silo, key in MEMBERS.items():
        public = Ed25519PublicKey.from_public_bytes(VerifyKey.from_text(key).raw)
        row = bytes.fromhex(SUM["keys"][silo])
        own = json.dumps({"silo": silo}, separators=(",", ":")).encode()
        public.verify(row[96:], b"fedsilo/secure-keys/v1\0" + row[:96] + own + CONTEXT)
        if silo in SURVIVORS:
            row = bytes.fromhex(SUM["survivors"][silo])
            stated = {"sent": row[:32].hex(), "survivors": sorted(SURVIVORS)}
            content = json.dumps(stated, sort_keys=True, separators=(",", ":")).encode() + CONTEXT
            public.verify(row[32:], b"fedsilo/secure-survivors/v1\0" + content)


def test_the_last_message_ends_with_keys_that_are_signed_over_the_next_context() -> None:
    for silo in SURVIVORS:
        public = Ed25519PublicKey.from_public_bytes(VerifyKey.from_text(MEMBERS[silo]).raw)
        message = bytes.fromhex(SUM["unmask"][silo])
        row = message[66 * len(MEMBERS) :]
        own = json.dumps({"silo": silo}, separators=(",", ":")).encode()
        public.verify(row[96:], b"fedsilo/secure-keys/v1\0" + row[:96] + own + SUM["nextContext"].encode())


def test_the_sum_is_that_of_the_survivors() -> None:
    total = sum(numbers(SUM["vectors"][silo]) for silo in SURVIVORS)
    assert np.asarray(total).tolist() == numbers(SUM["sum"]).tolist()


def test_the_vectors_are_what_the_package_makes() -> None:
    assert sums.document() == SUM
