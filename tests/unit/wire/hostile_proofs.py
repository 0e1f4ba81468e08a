"""Proofs of requests that anybody can make, as costly to refuse as they can be; no key is needed for any of them.

`python -m tests.unit.wire.hostile_proofs` prints what refusing each costs, in microseconds per KB of the proof.
"""

from __future__ import annotations

import base64
import contextlib
import time
import tracemalloc
from typing import Any

from fedsilo.errors import Problem
from fedsilo.wire import SigningKey, verify_request
from fedsilo.wire.fields import pack
from fedsilo.wire.request import MAX_PROOF_BYTES

ROOM = MAX_PROOF_BYTES - 3 - 66
"""Bytes of the largest header: what its own head and the signature leave."""

SENDER = "silo-north/north"
KEYS = {SENDER: SigningKey.from_seed(bytes(32)).verify_key}
REQUEST: dict[str, Any] = {"job": "job-uid", "method": "GET", "path": "/", "body": None, "now": 1000}

FIELDS = {
    "protocol": 1,
    "job": "job-uid",
    "sender": SENDER,
    "keyId": KEYS[SENDER].key_id,
    "method": "GET",
    "path": "/",
    "body": b"",
    "issued": 1000,
    "expires": 1060,
}


def filled_header(begin: bytes, piece: bytes) -> bytes:
    """A header that begins so and repeats the piece as often as there is room."""
    return begin + piece * ((ROOM - len(begin)) // len(piece))


def many_keys() -> bytes:
    pieces = [pack(chr(33 + n % 90) + chr(33 + n // 90)) + b"\xc0" for n in range(ROOM // 4)]
    return b"\xde" + len(pieces).to_bytes(2, "big") + b"".join(pieces)


def maps_of_maps() -> bytes:
    """Maps of four maps each: as many as a message would quote of one."""
    inner = b"\x80"
    for _ in range(4):
        inner = b"\x84" + b"".join(pack(key) + inner for key in "abcd")
    return b"\x83" + b"".join(pack(key) + inner for key in "abc")


HEADERS = {
    "lists of 65,535 in one another": filled_header(b"\x81\xa1a", b"\xdc\xff\xff"),
    "lists of 4,000 in one another": filled_header(b"\x81\xa1a", b"\xdc\x0f\xa0"),
    "lists of 15 in one another": filled_header(b"\x81\xa1a", b"\x9f"),
    "lists of one in one another": b"\x81\xa1a" + b"\x91" * 500 + b"\x90",
    "empty lists side by side": filled_header(b"\x81\xa1a\xdc\x0f\x00", b"\x90"),
    "empty maps side by side": filled_header(b"\x81\xa1a\xdc\x0f\x00", b"\x80"),
    "maps in one another": b"\x81\xa1a" * 500 + b"\x80",
    "maps of maps": maps_of_maps(),
    "maps as keys": filled_header(b"", b"\x81"),
    "many keys": many_keys(),
    "one long text": b"\x81\xa1a\xda" + (ROOM - 6).to_bytes(2, "big") + b"x" * (ROOM - 6),
    "extension types": filled_header(b"\x81\xa1a\xdc\x01\x00", b"\xd4\x05\x00"),
    "timestamps": filled_header(b"\x81\xa1a\xdc\x01\x00", b"\xd6\xff\x00\x00\x00\x00"),
    "numbers": filled_header(b"\x81\xa1a\xdc\x0f\x00", b"\x01"),
    "right in all but the signature": pack(FIELDS),
}


def proof(header: bytes) -> str:
    """The header with a signature of zeros."""
    data = pack(header) + b"\xc4\x40" + bytes(64)
    return "Fedsilo " + base64.urlsafe_b64encode(data).decode().rstrip("=")


def refuse(value: str) -> None:
    """Check that a proof is refused; nothing else happens."""
    with contextlib.suppress(Problem):
        verify_request(value, KEYS, **REQUEST)
        raise AssertionError("accepted")


def most_memory(header: bytes) -> int:
    """Bytes that refusing it takes at most; a process in which nothing else runs measures the same each time."""
    value = proof(header)
    refuse(value)  # what is imported or compiled once is none of its cost
    tracemalloc.start()
    try:
        refuse(value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    print(f"{'proof':36}{'bytes':>7}{'us':>9}{'us/KB':>9}")
    for name, header in HEADERS.items():
        value, tries = proof(header), []
        for _ in range(50):
            began = time.perf_counter()
            refuse(value)
            tries.append(time.perf_counter() - began)
        took = 1e6 * sorted(tries)[len(tries) // 2]
        print(f"{name:36}{len(value):7}{took:9.0f}{1024 * took / len(value):9.0f}")


if __name__ == "__main__":
    main()
