"""Features that stay in their files: read by item, checked as those in memory are, never all at once.

Files are read with pread(2) and not mapped: pages of a map count as the trainer's memory, and a file that becomes
shorter under a map ends the process. A read of one item needs no lock and lets other threads run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedsilo.api.text import first_line, size
from fedsilo.data.features import FeatureRules, checked_features
from fedsilo.data.numbering import SchemaMismatch
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.process import TEMPORARY_BYTES

IN_MEMORY_BYTES = 1 << 30
"""Features of more bytes stay in their files, where the loader's configuration does not say otherwise."""


@runtime_checkable
class FeatureSource(Protocol):
    """Raw features by item, as a loader stores them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of items, and the shape of each."""

    @property
    def dtype(self) -> np.dtype:
        """Element type of the features as stored."""

    def read(self, items: np.ndarray) -> np.ndarray:
        """The features of these items, in this order; called from several threads at once.

        :raises DataInvalid: naming the item that cannot be read
        """


def stays_in_files(in_memory: bool | None, nbytes: int) -> bool:
    """Whether features of so many bytes are read when they are needed; `in_memory` is the loader's setting."""
    return nbytes > IN_MEMORY_BYTES if in_memory is None else not in_memory


@dataclass(frozen=True)
class LazyFeatures:
    """Features of which each batch is read and checked when it is needed.

    It has the attributes and the indexing of an array of the same content. `numpy.asarray` reads all of it.

    :param input_shape: of one item, as the job says
    :param dataset: name that errors begin with
    :param items: which items of the source these are; None for all
    :param missing: whether NaN, a missing value, is admitted
    :param double: whether numbers that are no bytes are read as float64
    """

    source: FeatureSource
    input_shape: tuple[int, ...]
    dataset: str
    items: np.ndarray | None = None
    missing: bool = False
    double: bool = False

    def __len__(self) -> int:
        return self.source.shape[0] if self.items is None else len(self.items)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all features, (N, *input_shape)."""
        return (len(self), *self.input_shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions of the features, with that of the items."""
        return 1 + len(self.input_shape)

    @property
    def dtype(self) -> np.dtype:
        """Element type of the features that are read: bytes stay what they are, others become float32 or float64."""
        if self.source.dtype == np.uint8:
            return np.dtype(np.uint8)
        return np.dtype(np.float64 if self.double else np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes that all of it would take in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __getitem__(self, index: Any) -> np.ndarray:
        first, *rest = index if isinstance(index, tuple) else (index,)
        places = np.arange(len(self))[first]
        if places.ndim == 0:
            one: np.ndarray = self.read(places[np.newaxis])[0][tuple(rest)]
            return one
        return self.read(places)[:, *rest]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[place] for place in range(len(self)))

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.read(np.arange(len(self))).astype(dtype or self.dtype, copy=False)  # type: ignore[call-overload, no-any-return]

    def take(self, index: np.ndarray) -> LazyFeatures:
        """Some of these features, over the same source; nothing is read."""
        return replace(self, items=index if self.items is None else self.items[index])

    def require_readable(self) -> None:
        """Read and check every item once.

        :raises DataInvalid: as `read`
        """
        for place in range(len(self)):
            self.read(np.array([place]))

    def read(self, index: np.ndarray) -> np.ndarray:
        """The features at these places, contiguous.

        :raises DataInvalid: an item cannot be read, or is not what the job says
        """
        items = index if self.items is None else self.items[index]
        with naming(self.dataset):
            found = self.source.read(items)
            return checked_features(found, self.input_shape, items, missing=self.missing, double=self.double)


@contextmanager
def naming(dataset: str) -> Iterator[None]:
    """Put the dataset's name in front of what is wrong with it, and word the system's own errors."""
    try:
        yield
    except SchemaMismatch as error:
        raise error.with_dataset(dataset) from error
    except DataInvalid as error:
        raise DataInvalid(*(f"dataset {dataset!r}: {fault.marked_text}" for fault in error.faults)) from error
    except OSError as error:
        denied = isinstance(error, PermissionError)
        remedy = (
            "give this process the right to read it"
            if denied
            else "see that it is there and its volume works"
        )
        raise DataInvalid(
            f"dataset {dataset!r}: {quoted_value(repr(str(error.filename or 'a file')))} cannot be read"
            f" ({error.strerror or quoted_value(first_line(error))}); {remedy}"
        ) from error
    except MemoryError as error:
        raise DataInvalid(
            f"dataset {dataset!r}: does not fit into memory ({quoted_value(first_line(error))});"
            " give the trainer more, or use a smaller dataset"
        ) from error


class OpenFile:
    """A file that is open for as long as this object lives.

    :param number: of the open file
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)

    @classmethod
    def of(cls, path: Path) -> OpenFile:
        """A file, opened for reading."""
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def temporary_file(cls) -> OpenFile:
        """An empty file without a name, which is gone with this object."""
        number, path = tempfile.mkstemp()
        Path(path).unlink()
        return cls(number)


@dataclass(frozen=True)
class StoredRows:
    """Items of one shape and size, one after the other in an open file.

    :param name: of the file, for errors
    :param offset: where the first item begins
    """

    file: OpenFile
    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, items: np.ndarray) -> np.ndarray:
        """Rows of these items, read from the open file in this order."""
        rows = np.empty((len(items), *self.shape[1:]), self.dtype)
        width = rows.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        memory, descriptor = rows.reshape(-1).view(np.uint8).data, self.file.number
        for place, item in enumerate(items.tolist()):
            begin, end = place * width, (place + 1) * width
            where = self.offset + item * width
            while begin < end:
                count = os.preadv(descriptor, [memory[begin:end]], where)
                if count == 0:
                    raise DataInvalid(
                        f"item {item}: {self.name!r} has become shorter than its header says; copy the file anew"
                    )
                begin, where = begin + count, where + count
        return rows


class RowWriter:
    """Collects rows of numbers: in memory up to a size, beyond it in a temporary file without a name.

    :param width: numbers of a row
    :param in_memory: the loader's setting
    :param rules: by which the first rows decide whether all are float32 or float64
    """

    def __init__(self, width: int, in_memory: bool | None, rules: FeatureRules | None = None) -> None:
        self._width = width
        self._in_memory = in_memory
        self._rules = rules or FeatureRules()
        self._held: np.ndarray | None = None
        self._bytes = 0
        self._file: OpenFile | None = None
        room = os.environ.get(TEMPORARY_BYTES, "")
        self._room = int(room) if room.isdecimal() else None

    @property
    def dtype(self) -> np.dtype:
        """Type in which rows are to be given: float64 before the first ones, if they may have to stay in it."""
        if self._held is not None:
            return self._held.dtype
        return np.dtype(np.float32 if self._rules.rounding is None else np.float64)

    def append(self, rows: np.ndarray) -> None:
        """Add rows, (n, width).

        :raises DataInvalid: when there is no space for the temporary file, or the pod may not write so much
        """
        if self._held is None:
            self._held = np.empty(
                (0, self._width), np.float64 if self._rules.keep_double(rows) else np.float32
            )
        count = len(self._held)
        # The system moves pages of a large array rather than their content: there is never a second one.
        self._held.resize((count + len(rows), self._width), refcheck=False)
        self._held[count:] = rows
        self._bytes += rows.size * self._held.itemsize
        if self._file is not None or stays_in_files(self._in_memory, self._bytes):
            self._spill()

    def rows(self) -> np.ndarray | StoredRows:
        """All rows, (n, width)."""
        if self._file is None:
            return self._held if self._held is not None else np.empty((0, self._width), self.dtype)
        shape = (self._bytes // self.dtype.itemsize // self._width, self._width)
        return StoredRows(self._file, "the table's temporary file", 0, shape, self.dtype)

    def _spill(self) -> None:
        if self._room is not None and self._bytes > self._room:
            raise DataInvalid(
                f"the table takes {size(self._bytes)} so far, and this pod may write {size(self._room)} of temporary"
                " files; set limits.ephemeral-storage in the resources of the Silo's agent (of a test set: of the"
                " job's aggregator) to more than the table takes, set config.inMemory to true, or choose fewer columns"
            )
        try:
            if self._file is None:
                self._file = OpenFile.temporary_file()
            assert self._held is not None, "rows have been added"
            memory = self._held.reshape(-1).view(np.uint8).data
            while memory:
                memory = memory[os.write(self._file.number, memory) :]
        except OSError as error:
            raise DataInvalid(
                f"the table takes {size(self._bytes)} so far, which do not fit into {tempfile.gettempdir()!r}"
                f" ({error.strerror}); set TMPDIR to a directory with more space, set config.inMemory to true,"
                " or choose fewer columns"
            ) from error
        self._held = np.empty((0, self._width), self.dtype)
