"""The numbers of the largest magnitudes and where they are; all others are 0.

A. F. Aji, K. Heafield. Sparse Communication for Distributed Gradient Descent. EMNLP 2017.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedsilo.encodings.encoding import Encoding, Parts, ReadPart, SentParts, chunks, not_finite, part
from fedsilo.errors import Problem
from fedsilo.wire.tensors import TensorSpec

_INDICES = 1 << 32
"""Largest number of elements that an index of 32 bits can tell apart."""


@dataclass(frozen=True)
class TopKEncoding(Encoding):
    """The k numbers of largest magnitude, as parts `<name>.indices`, uint32 and ascending, and the numbers; of equal
    magnitudes the first ones.

    :param fraction: of the n numbers that is kept, k = ceil(fraction n), with the decimal that is written.
    """

    name: ClassVar[str] = "topk"
    sparse: ClassVar[bool] = True
    fraction: float = 0.01

    @override
    def parts(self, tensor: TensorSpec) -> tuple[TensorSpec, ...]:
        """Specs of the indices and the numbers that are kept.

        :raises Problem: `too-long` for a tensor whose last number has no index of 32 bits.
        """
        if tensor.size > _INDICES:
            text = f"tensor {tensor.name}: {tensor.size} numbers, of which topk can name {_INDICES}"
            raise Problem("too-long", f"{text}; send it in another encoding")
        kept = self.kept_count(tensor.size)
        return (
            part(tensor, "indices", (kept,), "uint32"),
            TensorSpec(tensor.name, (kept,), "float32"),
        )

    def kept_count(self, size: int) -> int:
        """k of a tensor of so many numbers."""
        return ceil(Decimal(repr(self.fraction)) * size)

    @override
    def encode(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """By selection, not by sorting; NaN counts as the largest magnitude, so that it is refused."""
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        indices = _largest_indices(np.abs(flat), self.kept_count(flat.size))
        return indices.astype(np.uint32), flat[indices]

    @override
    def decode(self, parts: Parts, shape: tuple[int, ...]) -> np.ndarray:
        """Zeros with the numbers in their places."""
        indices, kept = parts
        tensor = np.zeros(shape, np.float32)
        tensor.reshape(-1)[indices] = kept
        return tensor

    @override
    def piece(self, read: ReadPart, size: int, first: int, count: int) -> np.ndarray:
        """Indices ascend, so those of the piece are found by bisection."""
        places = range(self.kept_count(size))
        begin = bisect_left(places, first, key=lambda place: int(read(0, place, 1)[0]))
        end = bisect_left(places, first + count, begin, key=lambda place: int(read(0, place, 1)[0]))
        numbers = np.zeros(count, np.float32)
        numbers[read(0, begin, end - begin) - np.uint32(first)] = read(1, begin, end - begin)
        return numbers

    @override
    def check(self, tensor: TensorSpec, sent: SentParts) -> None:
        """Indices ascend and are in the tensor; numbers are finite."""
        kept, before = self.kept_count(tensor.size), -1
        for found in chunks(sent.read, 0, kept):
            if int(found[0]) <= before or (found[1:] <= found[:-1]).any() or int(found[-1]) >= tensor.size:
                text = f"block {tensor.name}.indices: must ascend from 0 to below {tensor.size}, each once"
                raise Problem("malformed", f"{text}; encode the tensor again")
            before = int(found[-1])
        for numbers in chunks(sent.read, 1, kept):
            if not np.isfinite(numbers).all():
                raise not_finite(tensor.name)


def _largest_indices(magnitudes: np.ndarray, count: int) -> np.ndarray:
    """Ascending indices of the largest magnitudes."""
    size = magnitudes.size
    if count == size:
        return np.arange(size)
    magnitudes[np.isnan(magnitudes)] = np.inf
    least = np.partition(magnitudes, size - count)[size - count]
    above = np.flatnonzero(magnitudes > least)
    equal = np.flatnonzero(magnitudes == least)[: count - above.size]
    return np.sort(np.concatenate([above, equal]))
