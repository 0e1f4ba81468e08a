"""Files that survive a crash whole: either the old content is there or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import Any, BinaryIO

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for lack of space, which may pass."""
    return error.errno in DISK_FULL_ERRNOS


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file: new content, flushed to the disk, then renamed into place."""
    with temporary_file(path.parent) as (file, temporary):
        file.write(content)
        publish(file, temporary, path)


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file durably."""
    write_durably(path, json.dumps(document, sort_keys=True).encode())


def read_json(path: Path) -> Any:
    """Content of a JSON file, or None where there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def append_durably(path: Path, line: str) -> None:
    """Append one line and flush it to the disk."""
    with path.open("ab") as file:
        file.write(line.encode() + b"\n")
        sync(file)


@contextlib.contextmanager
def temporary_file(directory: Path, mode: int = 0o666) -> Iterator[tuple[BufferedRandom, Path]]:
    """A new file, open for writing and reading, that is removed at the end unless `publish` moved it.

    Its name is unpredictable and new, so that two writers never share one, and nobody else who may
    write into the directory can plant a link for the content to follow.

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
    """Return when the directory's entries, new names and renames, are on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
