"""Plain files of bounded size, opened under names that somebody else may have given to something else.

A pipe would make this process wait for a writer, a device would never end, a file may be larger than memory without
taking any disk, and a link leads out of the directory that a person has named (CWE-59, CWE-400). What is refused here
is refused before a byte of it is read.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path

from fedsilo.errors import UnfitFile

_DESCRIPTOR = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]+")
"""Names of what a shell hands over: its standard input, or what it writes as `<(command)`."""

_SEARCH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""How a directory is opened of which a name is known: where the system can, without the right to list it."""

_KINDS = {
    stat.S_IFIFO: "is a pipe",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFLNK: "is a link",
}


def open_plain(path: Path, root: Path | None = None, links: bool = False) -> BufferedReader:
    """Open a plain file for reading.

    :param root: a directory above the file, below which no directory may be a link; by default the file's own.
    :param links: whether the name itself may be a link to a file below the root, as in volumes that Kubernetes mounts.
    :raises UnfitFile: when something else has the name, or a directory below the root is a link.
    :raises OSError: as open(2): there is none, or it may not be read.
    """
    return os.fdopen(_open_descriptor(path, path.parent if root is None else root, links), "rb")


def read_plain(path: Path, most: int, root: Path | None = None, links: bool = False) -> bytes:
    """Content of a plain file; parameters and errors as of `open_plain`.

    :param most: bytes that it may have.
    :raises UnfitFile: also when it has more.
    """
    with open_plain(path, root, links) as file:
        require_size(path, os.fstat(file.fileno()).st_size, most)
        return _read(path, file, most)


def read_named(path: Path, most: int) -> bytes:
    """Content of what a person has named: a plain file, a link to one in its directory, or what their shell hands over.

    `/dev/stdin` and `/dev/fd/N` are open already, so that reading waits for a program that the person has started. A
    pipe with a name of its own may never have a writer.

    :param most: bytes that it may have.
    :raises UnfitFile: when it is anything else, or has more.
    :raises OSError: as open(2).
    """
    if not _DESCRIPTOR.fullmatch(str(path)):
        return read_plain(path, most, links=True)
    with path.open("rb") as file:
        return _read(path, file, most)


def require_size(path: Path, size: int, most: int) -> None:
    """Return if a file of this size may be read.

    :raises UnfitFile: when it is larger than it may be.
    """
    if size > most:
        raise _unfit_file_error(path, f"has {size} bytes, and may have {most}")


def _read(path: Path, file: BufferedReader, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise _unfit_file_error(path, f"has more than {most} bytes")
    return content


def _open_descriptor(path: Path, root: Path, links: bool) -> int:
    directory = _directory(path, root)
    try:
        mode = _mode(path.name, directory)
        if not stat.S_ISLNK(mode) or not links:
            return _plain_descriptor(path, directory, mode)
    finally:
        os.close(directory)
    return _target(path, root)


def _plain_descriptor(path: Path, directory: int, mode: int) -> int:
    """A descriptor of the plain file of this name, of which something else may take the place at any time."""
    if (what := _KINDS.get(stat.S_IFMT(mode))) is not None:
        raise _unfit_file_error(path, what)
    # Not to wait for the writer of a pipe; of a plain file it means nothing.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path.name or ".", flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _unfit_file_error(path, "is no plain file") from None
        error.filename = str(path)
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _unfit_file_error(path, "is no plain file")


def _target(path: Path, root: Path) -> int:
    """A descriptor of the file that a link leads to, which must lie below the root."""
    target, home = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if not target.is_relative_to(home):
        raise _unfit_file_error(path, "is a link that leads out of its directory")
    return _open_descriptor(target, home, links=False)


def _directory(path: Path, root: Path) -> int:
    """A descriptor of the directory that holds the file."""
    current = os.open(root, _SEARCH_FLAGS)
    for part in path.relative_to(root).parts[:-1]:
        try:
            below = os.open(part, _SEARCH_FLAGS | os.O_NOFOLLOW, dir_fd=current)
        except OSError as error:
            if stat.S_ISLNK(_mode(part, current)):
                raise _unfit_file_error(path, f"lies in {part}, which is a link") from None
            error.filename = str(path)
            raise
        finally:
            os.close(current)
        current = below
    return current


def _mode(name: str, directory: int) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _unfit_file_error(path: Path, what: str) -> UnfitFile:
    return UnfitFile(errno.EINVAL, what, str(path))
