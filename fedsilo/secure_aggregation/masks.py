"""Masks of secure sums, which are long vectors that follow from short secrets, and secrets that two silos have in
common.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsilo.errors import Problem

KEY_BYTES = 32

PIECE_NUMBERS = 1 << 17
"""Numbers of a mask that are made at a time."""


def public_of(private: bytes) -> bytes:
    """The public key of a private one (X25519, RFC 7748)."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed_secret(private: bytes, public: bytes, purpose: str, context: bytes) -> bytes:
    """The 32 bytes that two silos have in common for a purpose in a context, by HKDF (RFC 5869) of their X25519 secret.

    Both public keys are part of it, smaller first, so that both sides compute the same.

    :raises Problem: `malformed` for a public key of small order, whose secret everybody knows.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise Problem(
            "malformed", "secure aggregation: a public key of small order; nothing is sent"
        ) from None
    info = b"\0".join(
        [b"fedsilo/secure-aggregation/v1", purpose.encode(), *sorted([public_of(private), public])]
    )
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info + context).derive(shared)


def add_mask(total: np.ndarray, secret: bytes, sign: int) -> None:
    """Add the mask of a secret to (n,) uint64 in place, or subtract it: the key stream of ChaCha20 (RFC 8439).

    A secret makes one mask only, so that the nonce may be zero.
    """
    stream = Cipher(ChaCha20(secret, bytes(16)), mode=None).encryptor()
    for first in range(0, total.size, PIECE_NUMBERS):
        piece = total[first : first + PIECE_NUMBERS]
        mask = np.frombuffer(stream.update(bytes(8 * piece.size)), "<u8")
        if sign > 0:
            np.add(piece, mask, out=piece)
        else:
            np.subtract(piece, mask, out=piece)
