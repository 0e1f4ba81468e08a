"""A blob on its way into the inbox: written as it arrives, and hashed meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedsilo.files.digests import algorithm_of, digest_text, hasher
from fedsilo.files.durable import AppendedFile, rename, unlink

READ_BYTES = 1 << 20
"""Amount that is read at a time of what was there before."""


class PartFile:
    """The bytes of a blob that are here, in the order in which they come, under a name of their own.

    What an earlier process has left is read once for the digest, and so is all of it after a write that failed halfway.

    :param path: the name that the blob gets when it is whole: its digest, which says by which hash.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f".{path.name}.part")
        self._target = path
        self._file = AppendedFile(self.path, synced=False)
        self._algorithm = algorithm_of(path.name)
        self._hash, self._size = hasher(self._algorithm), 0

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def size(self) -> int:
        """Bytes that are here; the digest covers them."""
        found = self.path.stat().st_size if self.path.exists() else 0
        if found != self._size:
            self._read()
        return self._size

    def append(self, piece: bytes | memoryview) -> None:
        """Take the bytes that follow.

        :raises OSError: when they cannot be written, of which a part may be in the file.
        """
        self._file.append(piece)
        self._hash.update(piece)
        self._size += len(piece)

    def clear(self) -> None:
        """Begin again with nothing."""
        self._file.close()
        unlink(self.path, missing_ok=True)
        self._hash, self._size = hasher(self._algorithm), 0

    def digest(self) -> str:
        """Digest of the bytes that are here, as a text."""
        return digest_text(self._algorithm, self._hash.digest())

    def publish(self) -> None:
        """Give the blob its name; whether a power cut leaves it so is seen by its digest."""
        if not self._size:
            self._file.append(b"")  # a blob of no bytes is a file too
        rename(self.path, self._target)

    def _read(self) -> None:
        self._file.close()
        self._hash, self._size = hasher(self._algorithm), 0
        buffer = memoryview(bytearray(READ_BYTES))
        with contextlib.suppress(FileNotFoundError), self.path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                self._hash.update(buffer[:count])
                self._size += count
