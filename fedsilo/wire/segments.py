"""Tensors in the file of an update, whose blocks are segments of them: where their bytes lie, and reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedsilo.errors import Problem
from fedsilo.wire.header import TensorEntry
from fedsilo.wire.tensors import raw_bytes

Segments = Sequence[TensorEntry]
"""All blocks of one tensor, in their order; of equal length but the last."""


def by_tensor(blocks: Iterable[TensorEntry]) -> dict[str, Segments]:
    """Name of a tensor -> its blocks, in the order of a header."""
    found: dict[str, list[TensorEntry]] = {}
    for block in blocks:
        found.setdefault(block.name, []).append(block)
    return dict(found)


def block_labels(blocks: Iterable[TensorEntry]) -> list[str]:
    """What errors call each block."""
    return [
        name if len(segments) == 1 else f"{name}, segment {number} of {len(segments)}"
        for name, segments in by_tensor(blocks).items()
        for number in range(1, len(segments) + 1)
    ]


def runs(segments: Segments, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Where consecutive bytes of a tensor lie: number of the segment, offset from `base`, and how many lie there.

    :param first: the first of the bytes, counted from the tensor's own first.
    :param count: of bytes.
    :raises ValueError: when the tensor has fewer.
    """
    if first + count > (size := sum(segment.length for segment in segments)):
        raise ValueError(f"block {segments[0].name}: {size} bytes; has not {count} from {first}")
    while count > 0:
        number, within = divmod(first, segments[0].length)
        length = min(count, segments[number].length - within)
        yield number, segments[number].offset + within, length
        first, count = first + length, count - length


def read_items(
    path: Path, file: BinaryIO, base: int, segments: Segments, first: int, buffer: np.ndarray
) -> None:
    """Fill the buffer with items of a tensor; any number of threads may read at the same time.

    Unlike pages of a mapped file, what was read before takes no memory of this process.

    :param path: of the file, for errors.
    :param first: number of the first item.
    :param buffer: one-dimensional, of the tensor's dtype.
    :raises ValueError: when fewer items follow than the buffer has.
    :raises Problem: `truncated`, when the file is shorter than it was.
    """
    missing = raw_bytes(buffer).data
    for _, offset, length in runs(segments, first * buffer.itemsize, len(missing)):
        part, missing, position = missing[:length], missing[length:], base + offset
        while part:
            count = os.preadv(file.fileno(), [part], position)
            if count == 0:
                raise Problem("truncated", f"update {path}: ends at {position}, within {segments[0].name}")
            position, part = position + count, part[count:]
