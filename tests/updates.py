"""The digests of updates that a test holds in memory or finds in files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedsilo.errors import Problem
from fedsilo.wire import stored_digest

_BIN_HEADS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""msgpack bin 8, bin 16, bin 32: bytes of length after the first."""

_SIGNATURE_BYTES = 66
"""The signature with its msgpack head."""


def digest_of(data: bytes) -> str:
    """SHA-256 of header and signature, by which a silo announces these bytes; of all of what begins with no header."""
    size = _BIN_HEADS.get(data[0], 0) if data else 0
    end = 1 + size + int.from_bytes(data[1 : 1 + size], "big") + _SIGNATURE_BYTES if size else len(data)
    return hashlib.sha256(data[:end]).hexdigest()


def digest_of_file(path: Path) -> str:
    """The digest of the update in a file if all of it holds; one that no update has, by its content, if not."""
    try:
        return stored_digest(path)
    except Problem:
        return hashlib.sha256(path.read_bytes()).hexdigest()
