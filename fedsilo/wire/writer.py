"""Write an update in one pass: payloads in pieces, each at its place and looked at on the way; the header last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedRandom
from pathlib import Path

import numpy as np

from fedsilo.durable import rename, sync, temporary_file
from fedsilo.errors import Problem
from fedsilo.wire.contract import Contract, ExpectedBlock
from fedsilo.wire.envelope import SIGNATURE_HEAD
from fedsilo.wire.fields import pack
from fedsilo.wire.header import TensorEntry, UpdateHeader, base, encode_header, gaps, offsets, update_digest
from fedsilo.wire.keys import UPDATE, SigningKey
from fedsilo.wire.tensors import DTYPES, BlockContent, TensorSpec, raw_bytes, spec_of

_CHUNK_BYTES = 1 << 20


def write_update(
    path: Path,
    *,
    job: str,
    task: str,
    round: int,
    sender: str,
    contract: Contract,
    task_digest: bytes,
    samples: int,
    metrics: Mapping[str, float],
    blocks: Iterable[tuple[ExpectedBlock, np.ndarray]],
    key: SigningKey,
) -> str:
    """Write, sign and publish an update; the path appears only when all of it is on disk.

    The arrays may be memory that others can still change: each byte is copied once, and what is hashed,
    inspected and written is that copy.

    :returns: its name, see `update_digest`.
    :raises Problem: whatever a receiver that holds the same contract would refuse.
    """
    payloads = list(blocks)
    header = UpdateHeader(
        job=job,
        task=task,
        round=round,
        sender=sender,
        key_id=key.verify_key.key_id,
        contract=bytes.fromhex(contract.digest()),
        task_digest=task_digest,
        samples=samples,
        metrics={name: float(value) for name, value in metrics.items()},
        blocks=lay_out((block.kind, spec_of(block.name, array)) for block, array in payloads),
    )
    with new_update(path, header, contract, key) as update:
        for block, array in payloads:
            source = raw_bytes(array)
            for start in range(0, len(source), _CHUNK_BYTES):
                update.write(block.name, memoryview(source[start : start + _CHUNK_BYTES].tobytes()))
        return update.publish()


def lay_out(blocks: Iterable[tuple[str, TensorSpec]]) -> tuple[TensorEntry, ...]:
    """Blocks, of which kind and spec are given in their order, as a header lists them, with digests of zeros."""
    listed = list(blocks)
    starts = offsets(spec.nbytes for _, spec in listed)
    return tuple(
        TensorEntry(spec.name, kind, spec.dtype, spec.shape, start, spec.nbytes, bytes(32))
        for (kind, spec), start in zip(listed, starts, strict=True)
    )


@contextmanager
def new_update(
    path: Path, header: UpdateHeader, contract: Contract, key: SigningKey
) -> Iterator[UpdateWriter]:
    """An update to be written; without `UpdateWriter.publish`, nothing is left of it.

    :param header: with the blocks of `lay_out`.
    :raises Problem: what a receiver that holds the same contract would refuse of the header.
    """
    contract.check(header.blocks, header.metrics)
    with temporary_file(path.parent) as (file, temporary):
        yield UpdateWriter(file, temporary, path, header, key)


class UpdateWriter:
    """Takes payloads in pieces: each block's own in their order, blocks in any.

    Digests have a fixed size, so the header's size, and with it every position, is known before any is.
    """

    def __init__(
        self, file: BufferedRandom, temporary: Path, path: Path, header: UpdateHeader, key: SigningKey
    ) -> None:
        self._file, self._temporary, self._path = file, temporary, path
        self._header, self._key = header, key
        signed = len(_signed(header, key))
        self._blocks: dict[str, _OpenBlock] = {}
        for entry, gap in zip(header.blocks, gaps(signed, header.blocks), strict=True):
            start = base(signed) + entry.offset
            self._blocks[entry.name] = _OpenBlock(entry, start)
            self._write_at(start - len(gap), memoryview(gap))

    def write(self, name: str, piece: memoryview) -> None:
        """Take the next bytes of a block; they must not change before this returns.

        :raises Problem: as `BlockContent.fault`.
        """
        block = self._blocks[name]
        block.content.update(piece)
        if block.content.fault is not None:
            raise block.content.fault
        self._write_at(block.start + block.written, piece)
        block.written += len(piece)

    def read(self, name: str) -> np.ndarray:
        """A block that is complete, as it was written."""
        entry = self._blocks[name].entry
        return self.read_items(name, 0, entry.length // DTYPES[entry.dtype].itemsize).reshape(entry.shape)

    def read_items(self, name: str, first: int, count: int) -> np.ndarray:
        """Some items of a block that is complete, in a flat array.

        :raises Problem: `truncated`, when somebody has cut the file off.
        """
        block = self._blocks[name]
        items = np.empty(count, DTYPES[block.entry.dtype])
        position, missing = block.start + first * items.itemsize, items.view(np.uint8).data
        while len(missing) > 0:
            read = os.preadv(self._file.fileno(), [missing], position)
            if read == 0:
                raise Problem("truncated", f"update {self._path}: ends at {position}, within {name}")
            position, missing = position + read, missing[read:]
        return items

    def publish(self) -> str:
        """Sign the update and give the file its name once all of it is on disk; the name of the update.

        That the file has this name is on the disk once its directory is synced.

        :raises ValueError: when bytes of a block are missing.
        """
        entries = tuple(block.closed() for block in self._blocks.values())
        data = _signed(replace(self._header, blocks=entries), self._key)
        self._write_at(0, memoryview(data))
        sync(self._file, self._temporary)
        rename(self._temporary, self._path)
        return update_digest(data)

    def _write_at(self, position: int, data: memoryview) -> None:
        while len(data) > 0:
            written = os.pwrite(self._file.fileno(), data, position)
            position, data = position + written, data[written:]


class _OpenBlock:
    """A block that is being written.

    :ivar start: of its payload in the file.
    :ivar written: bytes of it so far.
    """

    def __init__(self, entry: TensorEntry, start: int) -> None:
        self.entry = entry
        self.start = start
        self.written = 0
        self.content = BlockContent(entry.name, entry.dtype)

    def closed(self) -> TensorEntry:
        if self.written != self.entry.length:
            raise ValueError(f"block {self.entry.name}: {self.written} of {self.entry.length} bytes")
        return replace(self.entry, digest=self.content.digest())


def _signed(header: UpdateHeader, key: SigningKey) -> bytes:
    data = encode_header(header)
    return pack(data) + SIGNATURE_HEAD + key.sign(UPDATE, data)
