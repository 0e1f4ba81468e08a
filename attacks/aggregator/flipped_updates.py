"""An honest update with one bit changed: in its first byte, header, signature, first block and last byte; and with the
digest of another.

By: a silo of the job with its own key, or its disk.

Must: refused as `malformed`, `signature-invalid` or `digest-mismatch`.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from tests.integration.service.client import decode_signed


def flip_bit(data: bytes, place: int) -> bytes:
    """The data with one bit changed."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def attack(target: LiveAggregator) -> None:
    update, patch = target.update(), target.silo.patch
    signature = update.index(decode_signed(update)[1])
    target.expect("malformed", patch(target.task, b"\x80" + update[1:]))
    target.expect("signature-invalid", patch(target.task, flip_bit(update, 40)))
    target.expect("signature-invalid", patch(target.task, flip_bit(update, signature)))
    target.expect("digest-mismatch", patch(target.task, flip_bit(update, len(update) // 2)))
    target.expect("digest-mismatch", patch(target.task, flip_bit(update, len(update) - 1)))
    target.expect("digest-mismatch", patch(target.task, update, Upload_Digest="0" * 64))
