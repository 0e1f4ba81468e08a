"""Weighted sums of tensors over silos, element by element, on all cores.

A thread takes a piece of a tensor, and adds that piece of every silo, in order, while the sum is in the core's cache.
Reading and adding hold no interpreter lock, so requests are answered meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import fsum, isclose
from typing import Protocol

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.updates.equality import EqualityCheck, EqualNumbers, equal_in
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

    :param mean: whether the weights add up to one: then what is the same in all tensors, see `EqualityCheck`, is the
        same in the sum.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype, mean: bool = False) -> None:
        self._name = name
        self._dtype = dtype
        self._total = np.zeros(shape, _accumulator(dtype))
        self._flat = self._total.reshape(-1)
        self._included: list[tuple[FlatTensor, np.generic]] = []
        self._weights, self._mean = list[float](), mean
        self._equal: dict[int, EqualNumbers] = {}
        self._all_equal = mean and dtype.kind == "f"  # of other types all elements are whole numbers
        self._one: FlatTensor | None = None  # equal to all tensors so far, and readable after them

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
        self._weights.append(weight)

    def add(self, first: int, last: bool, scratch: Scratch) -> None:
        """Add the piece that begins at this element of all that is included.

        :param last: whether nothing is included after this.
        """
        total = self._flat[first : first + CHUNK_ELEMENTS]
        summand = scratch.array("summand", total.dtype, total.size)
        equal = self._equal_elements(first, total.size, scratch) if self._mean else None
        for tensor, weight in self._included:
            piece = tensor.read(first, scratch.array("read", tensor.dtype, total.size))
            if equal is not None:
                equal.compare(piece)
            np.multiply(piece, weight, out=summand, dtype=total.dtype)
            np.add(total, summand, out=total)
        if equal is None:
            return
        if last and self._dtype.kind == "f":
            if self._is_mean:
                equal.put(total)
        else:
            self._equal[first] = equal.equal_numbers()

    def forget_included(self, last: bool, scratch: Scratch) -> None:
        """Go on with tensors that are still to come: those before are in the sum.

        :param last: whether none comes.
        """
        tensors = [tensor for tensor, _ in self._included]
        self._included.clear()
        if not self._all_equal or not tensors:
            return
        one = self._one or tensors[0]
        self._all_equal = all(self._is_same(one, tensor, scratch) for tensor in tensors)
        if self._all_equal and not last:
            self._one = self._one or HeldTensor(one.read(0, np.empty(self.size, self._dtype)).copy())
        elif self._all_equal and self._is_mean:
            self._take(one, scratch)

    def result(self) -> np.ndarray:
        """The sum, of the tensors' type."""
        if self._dtype.kind == "f":
            return self._total.astype(self._dtype, copy=False)
        found = truncated_sums(self._total, self._dtype, len(self._weights))
        if self._is_mean:
            for first, (where, values) in self._equal.items():
                if values.size:
                    found.reshape(-1)[first : first + CHUNK_ELEMENTS][where] = values
        return found

    def _is_same(self, one: FlatTensor, other: FlatTensor, scratch: Scratch) -> bool:
        if one is other:
            return True
        for first, size in self._pieces():
            piece = one.read(first, scratch.array("first", self._dtype, size))
            if not equal_in([piece, other.read(first, scratch.array("read", self._dtype, size))]).all():
                return False
        return True

    def _take(self, one: FlatTensor, scratch: Scratch) -> None:
        """Have a tensor as the sum."""
        for first, size in self._pieces():
            self._flat[first : first + size] = one.read(first, scratch.array("read", self._dtype, size))

    def _pieces(self) -> Iterator[tuple[int, int]]:
        return (
            (first, min(CHUNK_ELEMENTS, self.size - first)) for first in range(0, self.size, CHUNK_ELEMENTS)
        )

    @property
    def _is_mean(self) -> bool:
        # A tensor that some silos have left out has less than all weights.
        return self._mean and isclose(fsum(self._weights), 1, rel_tol=1e-9)

    def _equal_elements(self, first: int, size: int, scratch: Scratch) -> EqualityCheck:
        where, compared = (scratch.array(purpose, np.dtype(bool), size) for purpose in ("equal", "compared"))
        return EqualityCheck(
            (scratch.array("first", self._dtype, size), where, compared), self._equal.get(first)
        )


def truncated_sums(totals: np.ndarray, dtype: np.dtype, summands: int) -> np.ndarray:
    """Sums in float64 as integers of a type: towards zero, but for what rounding may have taken off a whole number.

    :param summands: how many were rounded and added; weights of a mean may add up to a hair less than one.
    """
    nearest, slack = np.rint(totals), 1e-9 + np.abs(totals) * (summands * 2.0**-52)
    whole = np.where(np.abs(totals - nearest) <= slack, nearest, np.trunc(totals))
    if dtype.kind == "b":
        return np.asarray(whole).astype(dtype)
    limits = np.iinfo(dtype)
    most = float(limits.max)  # of 64 bits it is rounded up, beyond the type
    bounded = whole.clip(limits.min, most if int(most) == limits.max else np.nextafter(most, 0))
    return np.asarray(bounded).astype(dtype)


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


def add_included(sums: Sequence[Sum], last: bool) -> None:
    """Add to every sum what it includes, and have it included no more.

    :param last: whether nothing is included after this.
    """
    pieces = [(total, first) for total in sums for first in range(0, total.size, CHUNK_ELEMENTS)]
    elements = sum(total.size for total in sums)
    # Each thread takes the next piece: `next` of this iterator is one step that no other thread interrupts.
    left = iter(pieces)
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    if threads == 1 or elements <= CHUNK_ELEMENTS:
        _add_pieces(left, last)
    else:
        with ThreadPoolExecutor(threads, "fold") as pool:
            for ended in [pool.submit(_add_pieces, left, last) for _ in range(threads)]:
                ended.result()
    scratch = Scratch()
    for total in sums:
        total.forget_included(last, scratch)


def _add_pieces(pieces: Iterator[tuple[Sum, int]], last: bool) -> None:
    scratch = Scratch()
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused as the method's new state
        for total, first in pieces:
            total.add(first, last, scratch)


def _accumulator(dtype: np.dtype) -> np.dtype:
    if dtype.kind != "f":
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype
