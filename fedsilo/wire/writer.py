"""Write an update in one pass: payloads in pieces, each at its place and looked at on the way; the header last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedRandom
from pathlib import Path

import numpy as np

from fedsilo.errors import Problem
from fedsilo.files.durable import rename, sync, temporary_file
from fedsilo.wire.contract import Contract
from fedsilo.wire.envelope import SIGNATURE_HEAD
from fedsilo.wire.fields import pack
from fedsilo.wire.header import (
    TensorEntry,
    UpdateHeader,
    base,
    encode_header,
    gaps,
    offsets,
    segment_lengths,
    update_digest,
)
from fedsilo.wire.keys import UPDATE, SigningKey
from fedsilo.wire.segments import Segments, by_tensor, read_items, runs
from fedsilo.wire.tensors import DTYPES, BlockContent, TensorSpec


def lay_out(blocks: Iterable[tuple[str, TensorSpec]]) -> tuple[TensorEntry, ...]:
    """Tensors, of which kind and spec are given in their order, as a header lists them, with digests of zeros."""
    listed = [(kind, spec, length) for kind, spec in blocks for length in segment_lengths(spec.nbytes)]
    starts = offsets(length for _, _, length in listed)
    return tuple(
        TensorEntry(spec.name, kind, spec.dtype, spec.shape, start, length, bytes(32))
        for (kind, spec, length), start in zip(listed, starts, strict=True)
    )


@contextmanager
def new_update(
    path: Path, header: UpdateHeader, contract: Contract, key: SigningKey
) -> Iterator[UpdateWriter]:
    """An update to be written; without `UpdateWriter.publish`, nothing is left of it.

    :param header: with the blocks of `lay_out`.
    :raises Problem: what a receiver that holds the same contract would refuse of the header.
    """
    if header.algorithm != contract.algorithm:
        raise Problem(
            "contract-mismatch", f"update: digest is {header.algorithm}; must be {contract.algorithm}"
        )
    contract.check(header.tensors, header.metrics, header.samples)
    with temporary_file(path.parent) as (file, temporary):
        yield UpdateWriter(file, temporary, path, header, key)


class UpdateWriter:
    """Takes payloads in pieces: each tensor's own in their order, tensors in any.

    Digests have a fixed size, so the header's size, and with it every position, is known before any is.
    """

    def __init__(
        self, file: BufferedRandom, temporary: Path, path: Path, header: UpdateHeader, key: SigningKey
    ) -> None:
        self._file, self._temporary, self._path = file, temporary, path
        self._header, self._key = header, key
        signed = len(_signed_header(header, key))
        self._base = base(signed)
        self._tensors = {
            name: _OpenTensor(segments, header.algorithm)
            for name, segments in by_tensor(header.blocks).items()
        }
        for entry, gap in zip(header.blocks, gaps(signed, header.blocks), strict=True):
            self._write_at(self._base + entry.offset - len(gap), memoryview(gap))

    def write(self, name: str, piece: memoryview) -> None:
        """Take the next bytes of a tensor; they must not change before this returns.

        :raises ValueError: when the tensor has no such bytes.
        :raises Problem: as `BlockContent.fault`.
        """
        tensor = self._tensors[name]
        for number, offset, length in runs(tensor.segments, tensor.written, len(piece)):
            content = tensor.contents[number]
            content.update(piece[:length])
            if content.fault is not None:
                raise content.fault
            self._write_at(self._base + offset, piece[:length])
            tensor.written += length
            piece = piece[length:]

    def read(self, name: str) -> np.ndarray:
        """A tensor that is complete, as it was written."""
        spec = self._tensors[name].spec
        return self.read_items(name, 0, spec.size).reshape(spec.shape)

    def read_items(self, name: str, first: int, count: int) -> np.ndarray:
        """Some items of a tensor that is complete, in a flat array.

        :raises Problem: `truncated`, when somebody has cut the file off.
        """
        tensor = self._tensors[name]
        items = np.empty(count, DTYPES[tensor.spec.dtype])
        read_items(self._path, self._file, self._base, tensor.segments, first, items)
        return items

    def publish(self) -> str:
        """Sign the update and give the file its name once all of it is on disk; the digest of the update.

        That the file has this name is on the disk once its directory is synced.

        :raises ValueError: when bytes of a tensor are missing.
        """
        entries = tuple(entry for tensor in self._tensors.values() for entry in tensor.closed_entries())
        data = _signed_header(replace(self._header, blocks=entries), self._key)
        self._write_at(0, memoryview(data))
        sync(self._file, self._temporary)
        rename(self._temporary, self._path)
        return update_digest(data)

    def _write_at(self, position: int, data: memoryview) -> None:
        while len(data) > 0:
            written = os.pwrite(self._file.fileno(), data, position)
            position, data = position + written, data[written:]


class _OpenTensor:
    """A tensor that is being written.

    :ivar segments: its blocks, as the header lists them.
    :ivar contents: of each of them, so far.
    :ivar written: bytes of the tensor so far.
    """

    def __init__(self, segments: Segments, algorithm: str) -> None:
        first = segments[0]
        self.spec = TensorSpec(first.name, first.shape, first.dtype)
        self.segments = segments
        self.contents = [BlockContent(first.name, first.dtype, algorithm) for _ in segments]
        self.written = 0

    def closed_entries(self) -> Iterator[TensorEntry]:
        if self.written != self.spec.nbytes:
            raise ValueError(f"block {self.spec.name}: {self.written} of {self.spec.nbytes} bytes")
        for segment, content in zip(self.segments, self.contents, strict=True):
            yield replace(segment, digest=content.digest())


def _signed_header(header: UpdateHeader, key: SigningKey) -> bytes:
    data = encode_header(header)
    return pack(data) + SIGNATURE_HEAD + key.sign(UPDATE, data)
