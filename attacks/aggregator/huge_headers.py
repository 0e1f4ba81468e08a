"""Updates whose header has 4 MiB: of zeros, of lists in one another, of 20,000 blocks, rightly signed.

By: a silo of the job with its own key.

Must: refused as `malformed`, `too-long` or `unexpected-block`, in the time that reading them takes.
"""

from __future__ import annotations

import dataclasses

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError
from fedsilo.wire.envelope import SIGNATURE_HEAD
from fedsilo.wire.fields import pack
from fedsilo.wire.header import encode_header
from fedsilo.wire.keys import UPDATE
from tests.integration.service.client import header_of

HEADER_BYTES = (4 << 20) - 16


def attack(target: LiveAggregator) -> None:
    key, honest = target.silo.key, header_of(target.update())
    block = dataclasses.replace(honest.blocks[0], offset=0, length=0, shape=(0,))
    blocks = tuple(
        dataclasses.replace(block, name=f"b{number}", offset=64 * number) for number in range(20_000)
    )
    many = encode_header(dataclasses.replace(honest, blocks=blocks))
    for header in (bytes(HEADER_BYTES), b"\x81\xa1a" + b"\xdc\xff\xff" * (HEADER_BYTES // 3 - 1), many):
        update = pack(header) + SIGNATURE_HEAD + key.sign(UPDATE, header)
        answer = target.silo.patch(target.task, update)
        if answer.code not in ("malformed", "too-long", "unexpected-block"):
            raise NotRefusedError(f"answered {answer.status} {answer.code}")
        target.note(f"{answer.status} {answer.code}")
    target.expect("too-long", target.silo.patch(target.task, b"\xc6\x00\x40\x00\x01" + bytes(64)))
