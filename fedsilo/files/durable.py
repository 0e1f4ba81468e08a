"""Files that survive a crash whole: either the old content is there or the new one, never a part.

A disk may still lose or change what it was given: what is read again is checked, and a file that is not what was
written is a `FileDamaged`.

Whatever changes a directory that must survive does so through the verbs here, each of which is one `DiskStep` for
`intercept`: so tests can crash, fail or tear every single step.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedRandom, FileIO
from pathlib import Path
from typing import BinaryIO

from fedsilo.errors import FileDamaged, UnfitFile
from fedsilo.files.digests import ALGORITHMS, algorithm_of, file_digest, short_digest
from fedsilo.files.early_writing import EarlyWriter
from fedsilo.files.plain_files import open_plain, read_plain

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

UNREADABLE_ERRNOS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM})
"""What reading a file gives whose name something else has, or that is forbidden."""

MAX_BYTES = 256 << 20
"""Most bytes of a file that is read at once: more than any that fedsilo writes so, and less than fills a machine."""

RESTORE = "restore it from a backup, or begin anew in an empty directory"
"""What a person can do about a damaged file that has no other remedy."""


@dataclass(frozen=True)
class DiskStep:
    """One change of what is on the disk.

    :param operation: `create`, `append`, `truncate`, `sync`, `sync-directory`, `rename`, `link`, `unlink`,
        `remove-tree` or `make-directory`.
    :param path: what it is done to; of a rename or a link, the name before.
    :param target: the new name.
    """

    operation: str
    path: Path
    target: Path | None = None


intercept: Callable[[DiskStep, Callable[[], None]], None] | None = None
"""Performs every step in a test, which sets it; None, always outside of tests, just performs them."""


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed for lack of space, which may pass."""
    return isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file durably: new content, flushed to the disk, then renamed into place."""
    with temporary_file(path.parent) as (file, temporary):
        file.write(content)
        publish(file, temporary, path)


def write_visibly(path: Path, content: bytes) -> None:
    """Replace a file as `write_durably` does, but for the disk: whoever reads it finds all of one content or the other.

    After a power cut it may be damaged.
    """
    with temporary_file(path.parent) as (file, temporary):
        file.write(content)
        file.flush()
        rename(temporary, path)


def require_content(path: Path, digest: str, remedy: str = RESTORE, root: Path | None = None) -> None:
    """Return if the file has the content that is expected of it.

    :param digest: as a text, which says by which hash.
    :param root: a directory above the file, as of `fedsilo.files.plain_files.open_plain`.
    :raises FileDamaged: when it is missing or has other content.
    """
    algorithm = algorithm_of(digest)
    try:
        with translate_read_errors(path, remedy), open_plain(path, root) as file:
            found = file_digest(file, algorithm)
    except FileNotFoundError:
        raise FileDamaged(f"{path}: is missing; {remedy}") from None
    if found != digest:
        what = ALGORITHMS[algorithm]
        raise FileDamaged(
            f"{path}: its {what} is {short_digest(found)}, not {short_digest(digest)}; {remedy}"
        )


def read_file(path: Path, remedy: str = RESTORE, most: int = MAX_BYTES, links: bool = False) -> bytes | None:
    """Content of a plain file, or None where there is none.

    :param most: bytes that it may have.
    :param links: whether it may be a link to one in its directory, as in volumes that Kubernetes mounts.
    :raises FileDamaged: when something else has its name, it is too large, or it may not be read.
    """
    try:
        with translate_read_errors(path, remedy):
            return read_plain(path, most, links=links)
    except FileNotFoundError:
        return None


def require_directory(path: Path, remedy: str = RESTORE) -> None:
    """Return if the path is a directory, and no link to one: what is removed in it must be fedsilo's own.

    :raises FileDamaged: when it is anything else.
    """
    if path.is_symlink() or not path.is_dir():
        raise FileDamaged(f"{path}: is not a directory; {remedy}")


@contextlib.contextmanager
def translate_read_errors(path: Path, remedy: str = RESTORE) -> Iterator[None]:
    """A block that opens and reads a file.

    :raises FileDamaged: when something else has its name, or it may not be read.
    """
    try:
        yield
    except OSError as error:
        if not isinstance(error, UnfitFile) and error.errno not in UNREADABLE_ERRNOS:
            raise
        raise FileDamaged(f"{path}: cannot be read ({error.strerror}); {remedy}") from error


def append_durably(path: Path, line: str) -> None:
    """Append one line and flush it to the disk; the file is made where there is none.

    A try that failed may have left an empty file, whose name is not on the disk yet.
    """
    new = not path.exists() or path.stat().st_size == 0
    with path.open("ab") as file:
        file.write(line.encode() + b"\n")
        sync(file, path)
    if new:
        sync_directory(path.parent)


@contextlib.contextmanager
def temporary_file(directory: Path, mode: int = 0o666) -> Iterator[tuple[BufferedRandom, Path]]:
    """A new file, open for writing and reading, that is removed at the end unless `publish` moved it.

    Its name is unpredictable and new, so that two writers never share one, and nobody else who may
    write into the directory can plant a link for the content to follow.

    :param mode: permissions, less the process's umask.
    """
    path = directory / f".{secrets.token_hex(8)}.tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    opened: list[int] = []
    _perform("create", path, lambda: opened.append(os.open(path, flags, mode)))
    try:
        with os.fdopen(opened[0], "w+b") as file:
            yield file, path
    except OSError as error:
        error.filename = error.filename or str(path)  # what a descriptor is written to has no name
        raise
    finally:
        unlink(path, missing_ok=True)


def publish(file: BinaryIO, temporary: Path, path: Path) -> None:
    """Give a temporary file its name, in the same directory, once all of it is on disk."""
    sync(file, temporary)
    rename(temporary, path)
    sync_directory(path.parent)


def sync(file: BinaryIO | FileIO, path: Path) -> None:
    """Return when everything written to the file is on disk.

    :param path: its name, for errors.
    """
    try:
        file.flush()
        _perform("sync", path, lambda: os.fsync(file.fileno()))
    except OSError as error:
        error.filename = error.filename or str(path)  # a descriptor has no name
        raise


def sync_directory(directory: Path) -> None:
    """Return when the directory's entries, new names and renames, are on disk."""

    def perform() -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    _perform("sync-directory", directory, perform)


class AppendedFile:
    """A file that grows piece by piece, opened once; what a power cut leaves of it must be checked.

    It is made with the first piece where there is none.

    :param synced: whether `sync` follows, so that the system may as well bring the file to the disk while it grows. A
        file that can be had again, and is soon removed, may never need a disk.
    """

    def __init__(self, path: Path, *, synced: bool) -> None:
        self.path = path
        self._synced = synced
        self._file: FileIO | None = None
        self._early: EarlyWriter | None = None

    def __enter__(self) -> AppendedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, content: bytes | bytearray | memoryview) -> None:
        """Write at the end of what is there.

        :raises OSError: when only a part of it was written, or nothing.
        """
        _perform("append", self.path, lambda: self._write(memoryview(content)))

    def close(self) -> None:
        """Give the descriptor back; the next piece opens the file anew."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, content: memoryview) -> None:
        file = self._open_file()
        try:
            while content:
                content = content[file.write(content) :]
            if self._early is not None:
                self._early.start_writeback(file.tell())
        except OSError as error:
            error.filename = error.filename or str(self.path)  # a descriptor has no name
            raise

    def _open_file(self) -> FileIO:
        if self._file is None:
            self._file = FileIO(self.path, "a")
            if self._synced:
                self._early = EarlyWriter(self._file.fileno(), self._file.tell())
        return self._file


def truncate(path: Path, size: int) -> None:
    """Drop what comes after so many bytes of a file, until the next `sync` perhaps not for ever."""
    _perform("truncate", path, lambda: os.truncate(path, size))


def rename(path: Path, target: Path) -> None:
    """Give a file another name, which it takes from any other file; on disk after `sync_directory`.

    :raises FileDamaged: when a directory has that name.
    """

    def perform() -> None:
        try:
            path.replace(target)
        except IsADirectoryError:
            raise FileDamaged(f"{target}: is a directory, where a file belongs; remove it") from None

    _perform("rename", path, perform, target)


def link(path: Path, target: Path) -> None:
    """Give a file a second name; on disk after `sync_directory`.

    :raises FileExistsError: when there is a file of that name.
    """
    _perform("link", path, lambda: os.link(path, target), target)


def unlink(path: Path, missing_ok: bool = False) -> None:
    """Remove a file from its directory; after a power cut before `sync_directory`, it may be there again."""
    if not missing_ok or os.path.lexists(path):
        _perform("unlink", path, lambda: path.unlink(missing_ok))


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it, which, as with `unlink`, may be there again."""
    _perform("remove-tree", directory, lambda: shutil.rmtree(directory))


def remove(path: Path) -> None:
    """Remove what has this name: a file, a link and not what it leads to, or a directory with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        unlink(path)


def make_directory(directory: Path) -> None:
    """Return when the directory, and those above it, are there and on disk.

    Whoever made an empty one may have died before its name was on disk.
    """
    if directory.is_dir():
        if not any(directory.iterdir()) and os.access(directory.parent, os.R_OK | os.W_OK):
            sync_directory(directory.parent)
        return
    make_directory(directory.parent)
    _perform("make-directory", directory, lambda: directory.mkdir(exist_ok=True))
    sync_directory(directory.parent)


def make_own_directory(directory: Path, remedy: str = RESTORE) -> None:
    """Make a directory that only fedsilo writes, unless it is there.

    :raises FileDamaged: when something else, such as a link, has its name or that of one above it.
    """
    if os.path.lexists(directory):
        require_directory(directory, remedy)
    try:
        make_directory(directory)
    except (FileExistsError, NotADirectoryError) as error:
        raise FileDamaged(f"{error.filename}: is not a directory; {remedy}") from error


def _perform(operation: str, path: Path, perform: Callable[[], None], target: Path | None = None) -> None:
    if intercept is None:
        perform()
    else:
        intercept(DiskStep(operation, path, target), perform)
