"""Read updates in files: open an accepted one tensor by tensor, or check what a disk may have changed."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from fedsilo.errors import Problem
from fedsilo.files.plain_files import open_plain
from fedsilo.wire.checker import PayloadCheck
from fedsilo.wire.envelope import SIGNATURE_HEAD, read_bin_head, split_envelope
from fedsilo.wire.header import (
    MAX_HEADER_BYTES,
    TensorEntry,
    UpdateHeader,
    base,
    decode_header,
    update_digest,
)
from fedsilo.wire.keys import SIGNATURE_BYTES, UPDATE, VerifyKey
from fedsilo.wire.segments import by_tensor, read_items
from fedsilo.wire.tensors import DTYPES

_CHUNK_BYTES = 1 << 20
_BIN_HEAD = 5  # the longest head of a msgpack bin


def open_update(path: Path) -> UpdateReader:
    """Open an update that was checked before; neither its signature nor any digest is checked again.

    :raises Problem: when the header cannot be read or the file does not have the length that it says.
    """
    data = signed_part(path)
    signed = len(data)
    header = decode_header(_cut(f"update {path}", data)[0])
    size = path.stat().st_size
    wanted = base(signed) + header.length if header.blocks else signed
    if size != wanted:
        raise Problem("malformed", f"update {path}: {size} bytes; must be {wanted}, fetch the update again")
    return UpdateReader(path, header, base(signed))


def signed_part(path: Path) -> bytes:
    """Header and signature of an update, as they stand at its beginning: all that its signature needs.

    :raises Problem: `malformed` when there is no header, or it is longer than one may be.
    """
    with path.open("rb") as file:
        return _read_signed(path, file)


def stored_digest(path: Path, root: Path | None = None) -> str:
    """The digest of the update in a file, all of which holds what its header says; who signed that is not looked at.

    :param root: a directory above it, as of `fedsilo.files.plain_files.open_plain`.
    :raises Problem: `malformed`, `truncated`, `too-long`, `digest-mismatch` or `not-finite`, or as `decode_header`.
    :raises OSError: when it cannot be read, or is no plain file.
    """
    with open_plain(path, root) as file:
        data = _read_signed(path, file)
        header = decode_header(_cut(f"update {path}", data)[0])
        payloads = PayloadCheck(len(data), header.blocks, header.algorithm)
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        while size := file.readinto(buffer):
            payloads.feed(buffer[:size])
    if payloads.missing_block is not None:
        raise Problem("truncated", f"update {path}: ends in {payloads.missing_block}; fetch the update again")
    return update_digest(data)


def _read_signed(path: Path, file: BinaryIO) -> bytes:
    start = file.read(5)
    head = read_bin_head(str(path), start) if len(start) == 5 else None
    if head is None or head[1] > MAX_HEADER_BYTES:
        raise Problem("malformed", f"update {path}: no header at its beginning; fetch the update again")
    return start + file.read(sum(head) + len(SIGNATURE_HEAD) + SIGNATURE_BYTES - len(start))


def open_signed_part(data: bytes, key: VerifyKey) -> UpdateHeader:
    """Verify and decode header and signature of an update whose blocks need not be there.

    :raises Problem: `too-long`, `truncated`, `signature-invalid`, or as `decode_header`.
    """
    header, signature = _cut("update", data)
    key.verify(UPDATE, header, signature)
    return decode_header(header)


def _cut(what: str, data: bytes) -> tuple[bytes, bytes]:
    return split_envelope(what, data, _BIN_HEAD + MAX_HEADER_BYTES + len(SIGNATURE_HEAD) + SIGNATURE_BYTES)


class UpdateReader:
    """The tensors of one accepted update, to be read one at a time or a part at a time.

    :ivar header: what the update says about itself.
    """

    def __init__(self, path: Path, header: UpdateHeader, start: int) -> None:
        self.header = header
        self._path = path
        self._start = start
        self._tensors = by_tensor(header.blocks)
        self._file = path.open("rb")

    def __enter__(self) -> UpdateReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def names(self, kind: str) -> list[str]:
        """The names of the tensors of one kind, in the order of the file."""
        return [entry.name for entry in self.header.tensors if entry.kind == kind]

    def entry(self, name: str) -> TensorEntry:
        """What the header says of one tensor, in the first of its blocks.

        :raises Problem: `missing-block`.
        """
        found = self._tensors.get(name)
        if found is None:
            raise Problem(
                "missing-block", f"update {self._path}: no block {name}; it has {', '.join(self._tensors)}"
            )
        return found[0]

    def read(self, entry: TensorEntry, first: int, buffer: np.ndarray) -> None:
        """Fill the buffer with items of a tensor; any number of threads may read at the same time.

        :param first: number of the first item.
        :param buffer: one-dimensional, of the tensor's dtype.
        :raises ValueError: when fewer items follow than the buffer has.
        :raises Problem: `truncated`, when the file is shorter than it was.
        """
        read_items(self._path, self._file, self._start, self._tensors[entry.name], first, buffer)

    def tensor(self, name: str) -> np.ndarray:
        """One tensor, in memory of its own.

        :raises Problem: `missing-block`, or as `read`.
        """
        entry = self.entry(name)
        array = np.empty(entry.shape, DTYPES[entry.dtype])
        self.read(entry, 0, array.reshape(-1))
        return array
