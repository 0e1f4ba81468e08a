"""Files that appear whole or not at all, stay after a power cut, and leave memory when they are done with."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def temporary_file(directory: Path, mode: int = 0o666) -> Iterator[tuple[BufferedRandom, Path]]:
    """A new file, open for writing and reading, that is removed at the end unless `publish` moved it.

    :param mode: permissions, less the process's umask.
    """
    path = directory / f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def publish(file: BinaryIO, temporary: Path, path: Path) -> None:
    """Give a temporary file its name, in the same directory, once all of it is on disk."""
    sync(file)
    temporary.replace(path)
    sync_directory(path.parent)


def sync(file: BinaryIO) -> None:
    """Return when everything written to the file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Return when the directory's entries are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def release(mapped: mmap.mmap) -> None:
    """Give a mapping's memory back at once, although arrays over it may still be alive.

    The `with` target of the caller usually is. Unmapping under it would turn a late read into a crash, so its
    pages are dropped instead: a late read fetches them from the file again, and the last array unmaps.
    """
    try:
        mapped.close()
    except BufferError:
        mapped.madvise(mmap.MADV_DONTNEED)
