"""Compressed updates that claim or hold more than the contract has: refused by a live aggregator that stays small."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard

from fedsilo.encodings.registry import encoding_in
from fedsilo.wire import DTYPES
from tests.integration.service.client import Answer, FetchedTask, SiloClient, contents_of, forge, header_of
from tests.integration.service.conftest import Job
from tests.integration.service.site import Site, federation

HIDDEN_SIZES = (256, 256)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    given = federation(rounds=2, hidden=HIDDEN_SIZES, communication={"upload": {"compression": "zstd"}})
    site = Site(tmp_path_factory.mktemp("bombs"), given)
    process = site.aggregator()
    try:
        north, south = (SiloClient(site, silo) for silo in site.silos)
        yield Job(site, process, north, south)
    finally:
        process.kill()


def compressed_update(client: SiloClient, given: FetchedTask) -> bytes:
    """An honest update with compressed tensors."""
    encoding = encoding_in(given.contract)
    assert encoding is not None
    arrays = {
        part: array
        for found in given.contract.encoded
        for part, array in zip(found.parts, encoding.encode(given.tree[found.tensor.name]), strict=True)
    }
    return client.update(given, blocks=[(block, arrays[block.name]) for block in given.contract.blocks])


def with_frame(client: SiloClient, update: bytes, frame: bytes) -> bytes:
    """The update with this as the only frame of its largest tensor, rightly listed, digested and signed."""
    header, contents = header_of(update), contents_of(update)
    place = max(range(len(contents)), key=lambda number: len(contents[number]))
    length = np.array([len(frame), *np.frombuffer(contents[place - 1], "<u4")[1:]], np.uint32).tobytes()
    blocks, offset = [], 0
    for number, block in enumerate(header.blocks):
        content = {place - 1: length, place: frame}.get(number, contents[number])
        contents[number] = content
        shape = (len(content) // DTYPES[block.dtype].itemsize,) if number == place else block.shape
        digest = hashlib.sha256(content).digest()
        blocks.append(
            dataclasses.replace(block, shape=shape, offset=offset, length=len(content), digest=digest)
        )
        offset = -(-(offset + len(content) + 5) // 64) * 64
    return forge(client.key, dataclasses.replace(header, blocks=tuple(blocks)), contents)


def zeros(size: int) -> bytes:
    """A frame of so many zeros, made without having them in memory."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    piece = bytes(1 << 20)
    return b"".join(compressor.compress(piece) for _ in range(size >> 20)) + compressor.flush()


def memory(job: Job) -> int:
    """Largest resident memory so far, in bytes."""
    lines = Path(f"/proc/{job.aggregator.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) << 10


@pytest.mark.thorough
def test_bombs_are_refused_and_memory_does_not_grow_by_them(job: Job) -> None:
    given = job.north.fetch_task()
    honest = compressed_update(job.north, given)

    def send(data: bytes) -> Answer:
        return job.north.patch(given.task.task, data)

    assert send(with_frame(job.north, honest, b"neither")).code == "malformed"
    before = memory(job)
    for bomb in (zeros(1 << 30), zeros(1 << 20)[:-9]):
        answer = send(with_frame(job.north, honest, bomb))
        assert answer.code == "malformed"
        assert b"claims" in answer.body or b"cannot be decompressed" in answer.body
    assert memory(job) - before < 32 << 20
    assert send(with_frame(job.north, honest, bytes(4 * 256 * 256 + 1))).code == "wrong-shape"
    assert send(honest).status == 201
    assert job.north.patch(given.task.task, honest).status in (200, 201)
