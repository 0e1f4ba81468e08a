"""One process per directory: a lock that ends with its holder, and a file that names the holder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Self

from fedsilo.errors import FileDamaged

NAME = "lock"
"""The lock's file in the directory; it stays there when nobody holds the lock."""

MAX_HOLDER_BYTES = 1024
"""Most bytes that are read of what a holder has written of itself."""


@contextmanager
def hold_exclusive_lock(path: Path) -> Iterator[None]:
    """Wait until no other process has the file locked, and keep it locked meanwhile (flock(2)).

    :raises FileDamaged: when something else has its name.
    """
    with _open_lock_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class DirectoryLock:
    """An flock(2) on a file of a directory; a context manager that releases it.

    :raises FileDamaged: when something else has its name.
    :raises OSError: when the file cannot be opened for writing.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._file = _open_lock_file(self._path)

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
        return os.pread(self._file.fileno(), MAX_HOLDER_BYTES, 0).decode(errors="replace").strip()

    def write_holder(self, holder: str) -> None:
        """Record who holds the lock, for the messages of other processes."""
        try:
            self._file.truncate(0)
            self._file.write(holder.encode())
        except OSError as error:
            error.filename = str(self._path)  # a descriptor has no name
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _open_lock_file(path: Path) -> FileIO:
    """A lock's file, which is made where there is none."""
    try:
        # Neither through a link, nor until somebody reads from a pipe.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = FileIO(os.open(path, flags, 0o666), "r+")
    except IsADirectoryError:
        raise FileDamaged(f"{path}: is not a file; remove it") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise FileDamaged(f"{path}: is not a file; remove it") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileDamaged(f"{path}: is not a file; remove it")
    return file


def is_locked(directory: Path) -> bool:
    """Whether somebody holds the lock of a directory, which is only read; False where there is none or it is closed."""
    try:
        lock = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
