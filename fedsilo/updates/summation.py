"""Weighted sums of tensors over silos, element by element, on all cores.

A thread takes a piece of a tensor, and adds that piece of every silo, in order, while the sum is in the core's cache.
Reading and adding hold no interpreter lock, so requests are answered meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.wire import DTYPES, TensorEntry, UpdateReader

CHUNK_ELEMENTS = 1 << 17
"""Elements that are added at a time: sum, summand and what is read of a file fit into a core's cache."""

MAX_THREADS = 4
"""More would only wait for memory."""


class FlatTensor(Protocol):
    """One silo's tensor, of which parts can be read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""

    @property
    def dtype(self) -> np.dtype:
        """Type of its elements."""

    def read(self, first: int, buffer: np.ndarray) -> np.ndarray:
        """Read as many elements as the buffer has, in C order: in the buffer, or where they are."""


@dataclass(frozen=True)
class StoredTensor:
    """A block of an update's file."""

    update: UpdateReader
    entry: TensorEntry

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored tensor."""
        return self.entry.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of its elements."""
        return DTYPES[self.entry.dtype]

    def read(self, first: int, buffer: np.ndarray) -> np.ndarray:
        """Elements from the file, in the buffer."""
        self.update.read(self.entry, first, buffer)
        return buffer


class HeldTensor:
    """An array in memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape = array.shape
        self.dtype = array.dtype
        self._flat = array.reshape(-1)

    def read(self, first: int, buffer: np.ndarray) -> np.ndarray:
        """Elements of the array itself."""
        return self._flat[first : first + buffer.size]


class Sum:
    """A weighted sum, and the tensors that are to be added to it.

    Integers are summed in float64, and half-precision numbers in float32.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._name = name
        self._dtype = dtype
        self._total = np.zeros(shape, _accumulator(dtype))
        self._flat = self._total.reshape(-1)
        self._included: list[tuple[FlatTensor, np.generic]] = []

    @property
    def size(self) -> int:
        """Number of elements of the sum."""
        return self._flat.size

    def include(self, tensor: FlatTensor, weight: float) -> None:
        """Have weight times a tensor added, after those that were included before.

        :raises MethodError: when it has another shape.
        """
        if tensor.shape != self._total.shape:
            raise MethodError(
                f"tensor {self._name}: has shape {list(self._total.shape)} in one update and {list(tensor.shape)} in "
                "another; all silos must send the same shape"
            )
        self._included.append((tensor, self._flat.dtype.type(weight)))

    def add(self, first: int, scratch: Scratch) -> None:
        """Add the piece that begins at this element of all that is included."""
        total = self._flat[first : first + CHUNK_ELEMENTS]
        summand = scratch.array("summand", total.dtype, total.size)
        for tensor, weight in self._included:
            piece = tensor.read(first, scratch.array("read", tensor.dtype, total.size))
            np.multiply(piece, weight, out=summand, dtype=total.dtype)
            np.add(total, summand, out=total)

    def forget_included(self) -> None:
        """Go on with tensors that are still to come: those before are in the sum."""
        self._included.clear()

    def result(self) -> np.ndarray:
        """The sum, of the tensors' type."""
        if self._dtype.kind == "f":
            return self._total.astype(self._dtype, copy=False)
        # 1e-9 guards a mean of equal integers, whose weights may add up to a hair less than one.
        return np.trunc(self._total + 1e-9).astype(self._dtype)


class Scratch:
    """Buffers of one thread, by purpose and type."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, np.dtype], np.ndarray] = {}

    def array(self, purpose: str, dtype: np.dtype, size: int) -> np.ndarray:
        """One of so many elements, at most `CHUNK_ELEMENTS`, with any content."""
        found = self._buffers.get((purpose, dtype))
        if found is None or found.size < size:
            found = self._buffers[purpose, dtype] = np.empty(size, dtype)
        return found[:size]


def add_included(sums: Sequence[Sum]) -> None:
    """Add to every sum what it includes, and have it included no more."""
    pieces = [(total, first) for total in sums for first in range(0, total.size, CHUNK_ELEMENTS)]
    elements = sum(total.size for total in sums)
    # Each thread takes the next piece: `next` of this iterator is one step that no other thread interrupts.
    left = iter(pieces)
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    if threads == 1 or elements <= CHUNK_ELEMENTS:
        _add_pieces(left)
    else:
        with ThreadPoolExecutor(threads, "fold") as pool:
            for ended in [pool.submit(_add_pieces, left) for _ in range(threads)]:
                ended.result()
    for total in sums:
        total.forget_included()


def _add_pieces(pieces: Iterator[tuple[Sum, int]]) -> None:
    scratch = Scratch()
    for total, first in pieces:
        total.add(first, scratch)


def _accumulator(dtype: np.dtype) -> np.dtype:
    if dtype.kind != "f":
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype
