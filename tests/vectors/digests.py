"""The example's task and update in a job whose large content is hashed with BLAKE3."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from fedsilo.files.digests import BLAKE3, digest_text
from fedsilo.wire import BlobLink, seal_task, task_digest
from fedsilo.wire.fields import pack, unpack_map
from tests.vectors import example
from tests.vectors.example import AGGREGATOR, ARRAYS, BLOCKS, CONTENTS, HEADER
from tests.vectors.refused import entries, signed_update

CONTRACT = dataclasses.replace(example.CONTRACT, algorithm=BLAKE3)
TASK_MESSAGE = dataclasses.replace(
    example.TASK_MESSAGE,
    contract=bytes.fromhex(CONTRACT.digest()),
    blobs=(BlobLink("global", digest_text(BLAKE3, blake3(b"blob").digest()), 4),),
)
TASK_BYTES = seal_task(TASK_MESSAGE, AGGREGATOR)


def write(path: Path) -> None:
    """The whole update, as the package writes it."""
    blocks = zip(BLOCKS, ARRAYS, strict=True)
    example.write_example(path, CONTRACT, list(blocks), HEADER.metrics, task_digest(TASK_BYTES))


def refused_cases(good: Path) -> Iterator[tuple[str, str, bytes, str]]:
    """Name, code, bytes and reason.

    :param good: file of the whole update.
    """
    data = good.read_bytes()
    header = unpack_map("header", data[3 : 3 + int.from_bytes(data[1:3], "big")])
    plain = header | {"blocks": entries(CONTENTS)}
    yield (
        "named-sha256",
        "contract-mismatch",
        signed_update(pack(plain | {"digest": "sha256"}), CONTENTS),
        "an update with SHA-256, and a header that says so",
    )
    yield (
        "sha256",
        "digest-mismatch",
        signed_update(pack(plain), CONTENTS),
        "blocks with SHA-256 named BLAKE3",
    )
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    yield "flipped", "digest-mismatch", flipped, "one bit of the last block is flipped"
