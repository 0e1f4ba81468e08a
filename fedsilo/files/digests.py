"""The hashes by which large content is known: blobs, and the blocks of updates. What is small has SHA-256 everywhere.

A digest as a text says which hash made it: 64 hexadecimal digits alone are SHA-256, and those of BLAKE3 come after
`blake3-`. So a blob's name is enough to check it by, in a directory, a path of a request or a provenance.
"""

from __future__ import annotations

import hashlib
from io import BufferedRandom, BufferedReader
from typing import Protocol

SHA256 = "sha256"
BLAKE3 = "blake3"

ALGORITHMS = {SHA256: "SHA-256", BLAKE3: "BLAKE3"}
"""What manifests and headers call each hash -> what people do."""

_BLAKE3_PREFIX = f"{BLAKE3}-"
_CHUNK_BYTES = 1 << 20


class Hasher(Protocol):
    """A hash of bytes that come piece by piece."""

    def update(self, piece: bytes | memoryview, /) -> object:
        """Take the next bytes."""

    def digest(self) -> bytes:
        """The digest of all bytes so far, 32 bytes."""


def hasher(algorithm: str) -> Hasher:
    """A hash of no bytes yet.

    :param algorithm: one of `ALGORITHMS`.
    """
    if algorithm == BLAKE3:
        from blake3 import blake3  # only where a job asks for it: most processes never do

        return blake3()
    return hashlib.sha256()


def algorithm_of(digest: str) -> str:
    """By which hash a digest was made; anything that is none counts as one of SHA-256, which no content has."""
    return BLAKE3 if digest.startswith(_BLAKE3_PREFIX) else SHA256


def short_digest(digest: str) -> str:
    """The first digits of a digest, for messages."""
    return digest.removeprefix(_BLAKE3_PREFIX)[:12]


def digest_text(algorithm: str, digest: bytes) -> str:
    """A digest as a text, of the hash that made it."""
    return (_BLAKE3_PREFIX if algorithm == BLAKE3 else "") + digest.hex()


def digest_bytes(digest: str) -> bytes:
    """A digest's bytes, without the name of the hash.

    :raises ValueError: when they are not in hexadecimal.
    """
    return bytes.fromhex(digest.removeprefix(_BLAKE3_PREFIX))


def file_digest(file: BufferedReader | BufferedRandom, algorithm: str) -> str:
    """The digest, as a text, of an open file from where it stands to its end."""
    content, buffer = hasher(algorithm), memoryview(bytearray(_CHUNK_BYTES))
    while size := file.readinto(buffer):
        content.update(buffer[:size])
    return digest_text(algorithm, content.digest())
