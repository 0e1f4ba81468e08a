"""Envelopes of small signed messages: a msgpack bin with the header, a msgpack bin with the signature, and nothing
after.

The header is itself a canonical msgpack map. The signature is over the header's exact bytes, so a reader
verifies before it decodes, and never encodes again in order to verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsilo.errors import Problem
from fedsilo.wire.fields import pack, unpack_map
from fedsilo.wire.keys import SIGNATURE_BYTES, SigningKey, VerifyKey

MAX_ENVELOPE_BYTES = 1 << 20
SIGNATURE_HEAD = bytes([0xC4, SIGNATURE_BYTES])

_BIN_SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4}  # msgpack bin 8, bin 16, bin 32: bytes of length after the first


def seal(domain: str, fields: Mapping[str, object], key: SigningKey) -> bytes:
    """Encode and sign a map.

    :raises Problem: `too-long`.
    """
    header = pack(dict(fields))
    data = pack(header) + SIGNATURE_HEAD + key.sign(domain, header)
    if len(data) > MAX_ENVELOPE_BYTES:
        raise Problem(
            "too-long", f"{domain}: {len(data)} bytes; {MAX_ENVELOPE_BYTES} is the most a message may have"
        )
    return data


def open_envelope(domain: str, data: bytes, key: VerifyKey) -> dict[str, Any]:
    """Verify and decode what `seal` made.

    :raises Problem: `too-long`, `malformed`, `truncated` or `signature-invalid`.
    """
    header, signature = split_envelope(domain, data)
    key.verify(domain, header, signature)
    return unpack_map(domain, header)


def split_envelope(domain: str, data: bytes, limit: int = MAX_ENVELOPE_BYTES) -> tuple[bytes, bytes]:
    """Header and signature, neither of them checked.

    :raises Problem: `too-long`, `malformed` or `truncated`.
    """
    if len(data) > limit:
        raise Problem("too-long", f"{domain}: {len(data)} bytes; {limit} is the most a message may have")
    head = read_bin_head(domain, data)
    end = head[0] + head[1] + len(SIGNATURE_HEAD) + SIGNATURE_BYTES if head else 0
    if head is None or len(data) < end:
        raise Problem("truncated", f"{domain}: ends after {len(data)} bytes; send header and signature whole")
    if len(data) > end:
        raise Problem(
            "too-long", f"{domain}: {len(data) - end} bytes after the signature; nothing may follow it"
        )
    return cut_signed(domain, data, head)


def cut_signed(what: str, data: bytes, head: tuple[int, int]) -> tuple[bytes, bytes]:
    """Header and signature at the beginning of `data`, which is long enough for both.

    :param head: what `read_bin_head` found there.
    :raises Problem: `malformed` when no signature stands after the header.
    """
    start = head[0] + head[1]
    if data[start : start + 2] != SIGNATURE_HEAD:
        found = data[start : start + 2].hex()
        raise Problem(
            "malformed", f"{what}: {found} after the header; send a bin of {SIGNATURE_BYTES} bytes (c440)"
        )
    return data[head[0] : start], data[start + 2 : start + 2 + SIGNATURE_BYTES]


def read_bin_head(what: str, data: bytes) -> tuple[int, int] | None:
    """Size of a msgpack bin's head and of its payload in bytes, or None while `data` is too short to tell.

    :raises Problem: `malformed` when it is no bin, or not in its shortest form.
    """
    if not data:
        return None
    size = _BIN_SIZES.get(data[0])
    if size is None:
        raise Problem(
            "malformed", f"{what}: begins with byte {data[0]:02x}; send a msgpack bin (c4, c5 or c6)"
        )
    if len(data) <= size:
        return None
    length = int.from_bytes(data[1 : 1 + size], "big")
    if size > 1 and length < 1 << (4 * size):
        raise Problem(
            "malformed", f"{what}: {length} bytes with a length of {size} bytes; use the shortest form"
        )
    return 1 + size, length
