"""A file of lines that only grows, and of which only that counts which a commit point elsewhere vouches for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedsilo.errors import FileDamaged
from fedsilo.files.durable import RESTORE, append_durably, translate_read_errors, truncate
from fedsilo.files.plain_files import open_plain


class CommittedLines:
    """Lines that are appended before the commit point moves, and those beyond it, which are dropped.

    :param point: name of the file that is the commit point, for errors.
    :ivar number: of lines that count.
    :ivar last: SHA-256 of the last line that counts, without its end; None without lines.
    """

    def __init__(self, path: Path, point: str) -> None:
        self.path = path
        self.number = 0
        self.last: str | None = None
        self._point = point
        self._length = 0
        self._vouched = hashlib.sha256()

    def position(self) -> tuple[int, str]:
        """How many bytes count, and their SHA-256: what the commit point says."""
        return self._length, self._vouched.hexdigest()

    def load(self, length: int, sha256: str) -> Iterator[bytes]:
        """The lines that count, as they are read; what the commit point says is checked at the end.

        :raises FileDamaged: when the file has fewer bytes, or others.
        """
        self.number, self._length, self._vouched, self.last = 0, 0, hashlib.sha256(), None
        if self.path.exists():
            with translate_read_errors(self.path), open_plain(self.path) as file:
                while line := file.readline(length - self._length):
                    self._take(line)
                    yield line
        if self._length < length:
            raise FileDamaged(
                f"{self.path}: has {self._length} of the {length} bytes that {self._point} counts; {RESTORE}"
            )
        if self._vouched.hexdigest() != sha256:
            raise FileDamaged(
                f"{self.path}: its first {length} bytes are not those that {self._point} counts; {RESTORE}"
            )

    def append(self, lines: Sequence[str]) -> tuple[int, str]:
        """Write lines that do not count yet; what the commit point must say so that they do.

        They are appended to those that count: what an earlier try has left is dropped.
        """
        self.drop_rest()
        vouched = self._vouched.copy()
        for line in lines:
            append_durably(self.path, line)
            vouched.update(f"{line}\n".encode())
        return self._length + sum(len(line.encode()) + 1 for line in lines), vouched.hexdigest()

    def count(self, lines: Sequence[str]) -> None:
        """The commit point has moved: the lines that were appended count."""
        for line in lines:
            self._take(f"{line}\n".encode())

    def drop_rest(self) -> None:
        """Drop what is beyond the commit point."""
        if self.path.exists() and self.path.stat().st_size > self._length:
            truncate(self.path, self._length)

    def _take(self, line: bytes) -> None:
        self.number += 1
        self._length += len(line)
        self._vouched.update(line)
        self.last = hashlib.sha256(line.removesuffix(b"\n")).hexdigest()
