"""One process per directory: a lock that ends with its holder, and a file that names the holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from fedsilo.errors import FileDamaged

NAME = "lock"
"""The lock's file in the directory; it stays there when nobody holds the lock."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait until no other process has the file locked, and keep it locked meanwhile (flock(2))."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class DirectoryLock:
    """An flock(2) on a file of a directory; a context manager that releases it.

    :raises FileDamaged: when something else has its name.
    :raises OSError: when the file cannot be opened for writing.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / NAME
        if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
            raise FileDamaged(f"{path}: is not a file; remove it")
        self._file = path.open("a+", encoding="utf-8", errors="replace")

    def acquire(self) -> bool:
        """Take the lock unless another process holds it; whether this one holds it now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def holder(self) -> str:
        """What the last holder wrote of itself; empty where none has yet."""
        self._file.seek(0)
        return self._file.read().strip()

    def write_holder(self, holder: str) -> None:
        """Record who holds the lock, for the messages of other processes."""
        try:
            self._file.truncate(0)
            # At once and not through a buffer, which a full disk would leave filled.
            os.write(self._file.fileno(), holder.encode())
        except OSError as error:
            error.filename = self._file.name  # a descriptor has no name
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
