"""Tensors in a file, in the safetensors layout (huggingface/safetensors, README, section Format).

A blob is named by its digest and never changes. The same tree gives the same bytes, everywhere: the header
lists tensors in the tree's order; the data lie in descending order of item size, so that each is aligned to
its items without the gaps that the format forbids; and the header is padded so that the data begin at a
multiple of 64.
"""

from __future__ import annotations

import json
import mmap
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.files.digests import ALGORITHMS, SHA256, algorithm_of, digest_text, hasher, short_digest
from fedsilo.files.durable import publish, rename, sync, sync_directory, temporary_file
from fedsilo.files.early_writing import EARLY_BYTES, EarlyWriter
from fedsilo.wire.mapping import release
from fedsilo.wire.tensors import DTYPES, TensorSpec, Tree, raw_bytes, spec_of

MAX_BLOB_HEADER_BYTES = 4 << 20

_CODES = {
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
}
_NAMES = {code: name for name, code in _CODES.items()}
_METADATA = "__metadata__"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class BlobRef:
    """The name of a blob.

    :param digest: of the file, as a text, which says by which hash (`fedsilo.files.digests`).
    :param length: of the file, in bytes.
    """

    digest: str
    length: int


def write_blob(tree: Mapping[str, np.ndarray], directory: Path, algorithm: str = SHA256) -> BlobRef:
    """Write a tree to `directory/<digest>`; one that is there already is kept.

    :param algorithm: the hash that names it.
    :raises Problem: as `TensorSpec`.
    """
    with temporary_file(directory) as (file, temporary), _writing(tree, file, algorithm) as written:
        sync(file, temporary)
        ref = written()
        path = directory / ref.digest
        if not path.exists():
            rename(temporary, path)
            sync_directory(directory)
    return ref


def copy_blob(source: Path, ref: BlobRef, directory: Path) -> None:
    """Write a file of tensors to `directory/<digest>`, byte for byte.

    :raises Problem: `malformed`, when it is no longer what `ref` says.
    """
    with temporary_file(directory) as (file, temporary), source.open("rb") as given:
        algorithm = algorithm_of(ref.digest)
        content = hasher(algorithm)
        while piece := given.read(_CHUNK_BYTES):
            content.update(piece)
            file.write(piece)
        if (found := digest_text(algorithm, content.digest())) != ref.digest:
            raise _refusal(
                source,
                f"its {ALGORITHMS[algorithm]} is {short_digest(found)}, not {short_digest(ref.digest)}",
            )
        publish(file, temporary, directory / ref.digest)


def write_tensors(tree: Mapping[str, np.ndarray], path: Path) -> BlobRef:
    """Write a tree to a path of the caller's choice, which it replaces in one step; its digest is SHA-256.

    :raises Problem: as `TensorSpec`.
    """
    with temporary_file(path.parent) as (file, temporary), _writing(tree, file, SHA256) as written:
        publish(file, temporary, path)
        return written()


@contextmanager
def _writing(
    tree: Mapping[str, np.ndarray], file: BinaryIO, algorithm: str
) -> Iterator[Callable[[], BlobRef]]:
    """Write a tree, and hash it in a thread meanwhile, and while the file is brought to the disk.

    :returns: what waits for the digest, in the `with` block.
    """
    header, order, length = _lay_out(tree)
    digest = hasher(algorithm)
    if length < _CHUNK_BYTES:
        digest.update(header)
        file.write(header)
        for name in order:
            payload = raw_bytes(tree[name]).data
            digest.update(payload)
            file.write(payload)
        yield lambda: BlobRef(digest_text(algorithm, digest.digest()), length)
        return
    early = EarlyWriter(file.fileno(), 0)
    with ThreadPoolExecutor(1, "digest") as thread:
        hashed = thread.submit(digest.update, header)
        file.write(header)
        for name in order:
            payload = raw_bytes(tree[name]).data
            hashed = thread.submit(digest.update, payload)
            for start in range(0, len(payload), EARLY_BYTES):
                file.write(payload[start : start + EARLY_BYTES])
                early.start_writeback(file.tell())
            if not tree[name].flags.c_contiguous:
                hashed.result()  # at most one copy is held

        def written_ref() -> BlobRef:
            hashed.result()  # the last of a queue
            return BlobRef(digest_text(algorithm, digest.digest()), length)

        yield written_ref


def blob_parts(tree: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The bytes of a blob in order, in pieces of at most 1 MiB after the header, so that they stay in a cache.

    :raises Problem: as `TensorSpec`.
    """
    header, order, _ = _lay_out(tree)
    yield header
    for name in order:
        payload = raw_bytes(tree[name]).data
        for start in range(0, len(payload), _CHUNK_BYTES):
            yield payload[start : start + _CHUNK_BYTES]


def _lay_out(tree: Mapping[str, np.ndarray]) -> tuple[bytes, Sequence[str], int]:
    """The beginning of the file, the tensors in the order of their data, and the length of the file."""
    specs = {name: spec_of(name, array) for name, array in tree.items()}
    if _METADATA in specs:
        raise Problem(
            "malformed", f"tensor {_METADATA}: the name is reserved by the file format; choose another"
        )
    order = sorted(specs, key=lambda name: -DTYPES[specs[name].dtype].itemsize)  # stable
    spans = {}
    end = 0
    for name in order:
        spans[name] = [end, end + specs[name].nbytes]
        end = spans[name][1]
    table = {
        name: {"dtype": _CODES[spec.dtype], "shape": list(spec.shape), "data_offsets": spans[name]}
        for name, spec in specs.items()
    }
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 64)
    if len(header) > MAX_BLOB_HEADER_BYTES:
        raise Problem("too-long", f"blob: header of {len(header)} bytes; {MAX_BLOB_HEADER_BYTES} is the most")
    return len(header).to_bytes(8, "little") + header, order, 8 + len(header) + end


def open_blob(path: Path) -> MappedTensors:
    """Map a tensor file into memory; all of its header is checked before any data are touched.

    :raises Problem: `malformed`.
    """
    with path.open("rb") as file:
        return map_blob(path, file)


def map_blob(path: Path, file: BinaryIO) -> MappedTensors:
    """Map an open tensor file into memory, as `open_blob`.

    :param path: its name, for errors.
    """
    file.seek(0)
    specs, starts = _read_header(path, file)
    return MappedTensors(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), specs, starts)


class BlobReader:
    """The tensors of an open file in one pass; others may change or cut it meanwhile, so it is not mapped.

    :param path: its name, for errors.
    :ivar specs: name to spec, in the order of the file's header.
    :raises Problem: `malformed`.
    """

    def __init__(self, path: Path, file: BufferedReader | BufferedRandom) -> None:
        self.specs, starts = _read_header(path, file)
        self._path, self._file = path, file
        self._order = sorted(starts, key=starts.__getitem__)

    def pieces(self) -> Iterator[tuple[str, memoryview]]:
        """The data in the file's order, in pieces of one tensor each that are overwritten by the next.

        A piece has whole items, at most 1 MiB.

        :raises Problem: `malformed`, when the file is shorter or longer than it was.
        """
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        for name in self._order:
            missing = self.specs[name].nbytes
            while missing > 0:
                piece = buffer[:missing]
                if self._file.readinto(piece) < len(piece):
                    raise _refusal(self._path, f"ends within tensor {name}")
                missing -= len(piece)
                yield name, piece
        if self._file.read(1):
            raise _refusal(self._path, "has grown while it was read")


class MappedTensors(Mapping[str, np.ndarray]):
    """The tensors of an open file, as read-only views of the mapped file.

    :ivar specs: name to spec, in the order of the file's header.
    """

    def __init__(self, mapped: mmap.mmap, specs: dict[str, TensorSpec], starts: dict[str, int]) -> None:
        self.specs = specs
        self._mapped = mapped
        self._starts = starts

    def tensor(self, name: str) -> np.ndarray:
        """Tensor of this name in the file, as a read-only view.

        :raises KeyError: when the file has no such tensor.
        """
        spec, start = self.specs[name], self._starts[name]
        dtype = DTYPES[spec.dtype]
        return np.frombuffer(self._mapped, dtype, spec.nbytes // dtype.itemsize, start).reshape(spec.shape)

    def tree(self) -> Tree:
        """All tensors of the file by name."""
        return {name: self.tensor(name) for name in self.specs}

    @override
    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensor(name)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    @override
    def __len__(self) -> int:
        return len(self.specs)

    def __enter__(self) -> MappedTensors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back; views that are still alive stay readable."""
        release(self._mapped)


def _read_header(path: Path, file: BinaryIO) -> tuple[dict[str, TensorSpec], dict[str, int]]:
    """Specs and positions of the data by name, from the beginning of an open file, which stands there afterwards."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(MAX_BLOB_HEADER_BYTES, size - 8):
        raise _refusal(path, f"{size} bytes with a header of {length}")
    specs, begins = _read_table(path, file.read(length), size - 8 - length)
    return specs, {name: 8 + length + begin for name, begin in begins.items()}


def _read_table(path: Path, header: bytes, size: int) -> tuple[dict[str, TensorSpec], dict[str, int]]:
    """Specs and beginnings by name, from a header that must account for exactly `size` bytes of data."""
    specs: dict[str, TensorSpec] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in _parse(path, header).items():
        if name == _METADATA:
            continue
        try:
            spec, begin, end = _read_entry(name, entry)
        except (Problem, KeyError, TypeError, ValueError):
            raise _refusal(path, f"tensor {reprlib.repr(name)} is {reprlib.repr(entry)}") from None
        specs[name] = spec
        spans.append((begin, end, name))
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            raise _refusal(
                path, f"tensor {name} begins at {begin}, not at {position}, where the one before ends"
            )
        position = end
    if position != size:
        raise _refusal(path, f"the tensors have {position} bytes, the file has {size}")
    return specs, {name: begin for begin, _, name in spans}


def _parse(path: Path, header: bytes) -> dict[str, Any]:
    def require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key is given twice")
        return dict(pairs)

    try:
        table = json.loads(header.decode(), object_pairs_hook=require_unique_keys)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"its header is not JSON ({error})") from None
    if not isinstance(table, dict):
        raise _refusal(path, "its header is not a JSON object")
    return table


def _read_entry(name: str, entry: dict[str, Any]) -> tuple[TensorSpec, int, int]:
    """Spec, beginning and end of one tensor; whatever it raises, the entry is bad."""
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if set(entry) != {"dtype", "shape", "data_offsets"} or any(
        type(n) is not int for n in (begin, end, *shape)
    ):
        raise ValueError(name)
    spec = TensorSpec(name, shape, _NAMES[entry["dtype"]])
    if begin < 0 or end - begin != spec.nbytes:
        raise ValueError(name)
    return spec, begin, end


def _refusal(path: Path, found: str) -> Problem:
    return Problem(
        "malformed", f"tensor file {path}: {found}; write it again, it is damaged or of another format"
    )
