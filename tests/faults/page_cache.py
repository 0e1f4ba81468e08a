"""What a power cut leaves of a volume.

The model is that of POSIX, which promises less than most file systems keep: a file has the content of its last sync,
a directory the entries of its own last sync, and whatever was changed since may be there, in part, or not at all. A
file whose name was synced and whose content never was is empty, zeros, or a part of what was written.

What is on the disk is kept in files beside the volume, under a lock, so that several processes can take steps in one
volume, and die at any of them. Every change must be a step of `fedsilo.files.durable`.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedsilo.files.durable import DiskStep

SECTOR_BYTES = 512
"""A disk writes so many bytes at once or not at all."""


@dataclass(frozen=True)
class Entry:
    """What a name in a directory stands for.

    :param id: of a file its inode, which is held; of a directory what `PageCache` calls it, for inodes of directories
        cannot be held and are used again.
    """

    id: str
    is_directory: bool
    mode: int


Entries = Mapping[str, Entry]


class PageCache:
    """The difference between a volume as its processes see it and as it is on the disk.

    :param volume: a directory; its own name is on the disk.
    :param record: where the disk's state is kept, on the same file system and outside of the volume; a volume that
        has none yet is on the disk as it is.
    """

    def __init__(self, volume: Path, record: Path) -> None:
        self._volume = volume.resolve()
        self._record = record
        self._held, self._files = record / "held", record / "files"
        self._names, self._entries = record / "names", record / "entries"
        if not record.exists():
            self.sync_all()

    def sync_all(self) -> None:
        """Everything is on the disk now."""
        shutil.rmtree(self._record, ignore_errors=True)
        for directory in (self._held, self._files, self._names, self._entries):
            directory.mkdir(parents=True)
        with self._hold_lock():
            for directory in self._directories():
                self._sync_directory(directory)
                for path in directory.iterdir():
                    if path.is_file():
                        self._sync(path)

    def take(self, step: DiskStep, perform: Callable[[], None]) -> None:
        """Perform a step, as `fedsilo.files.durable.intercept` or from there, and note what is on the disk after it.

        :raises OSError: that of the step, which then changed nothing on the disk.
        """
        with self._hold_lock():
            perform()
            if not step.path.is_relative_to(self._volume) or not step.path.exists():
                return
            match step.operation:
                case "sync":
                    self._sync(step.path)
                case "sync-directory":
                    self._sync_directory(step.path)
                case "make-directory":
                    self._name(step.path, new=True)

    def cut(self, chance: random.Random, certain: bool = False) -> None:
        """Leave of the volume what a power cut leaves; nobody may use it meanwhile.

        :param chance: decides what of the changes since the last syncs is there.
        :param certain: nothing of them is.
        """
        with self._hold_lock():
            left = _SurvivingState(self, chance, certain)
            found = list(left.tree(self._volume, self.directory_id(self._volume)))
            # Names first: content may have to be read from files of the volume.
            contents = {path: left.content(path, entry) for path, entry in found if not entry.is_directory}
        for path in self._volume.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path, entry in found:
            if entry.is_directory:
                path.mkdir()
            else:
                path.write_bytes(contents[path])
        for path, entry in reversed(found):
            path.chmod(entry.mode)
        self.sync_all()

    def synced_content(self, inode: str) -> bytes | None:
        """Content of a file's last sync; None before the first."""
        path = self._files / inode
        return path.read_bytes() if path.exists() else None

    def present_content(self, inode: str) -> bytes:
        """Content of a held file, whatever its names are by now."""
        return (self._held / inode).read_bytes()

    def synced_entries(self, directory: str) -> Entries:
        """Entries of a directory as of its last sync; none before the first."""
        path = self._entries / directory
        return (
            {name: Entry(*entry) for name, entry in json.loads(path.read_text()).items()}
            if path.exists()
            else {}
        )

    def present_entries(self, directory: Path) -> Entries:
        """Entries of a directory as its processes see them; none where there is no such directory."""
        found = {}
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            status = path.lstat()
            is_directory = path.is_dir()
            name = self.directory_id(path) if is_directory else self._hold(path)
            found[path.name] = Entry(name, is_directory, status.st_mode & 0o7777)
        return found

    def directory_id(self, directory: Path) -> str:
        """What the record calls a directory that is there."""
        return self._name(directory, new=False)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        with (self._record / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _directories(self) -> Iterator[Path]:
        yield self._volume
        yield from (path for path in self._volume.rglob("*") if path.is_dir())

    def _sync(self, file: Path) -> None:
        self._replace(self._files / self._hold(file), file.read_bytes())

    def _sync_directory(self, directory: Path) -> None:
        entries = {
            name: (entry.id, entry.is_directory, entry.mode)
            for name, entry in self.present_entries(directory).items()
        }
        self._replace(self._entries / self.directory_id(directory), json.dumps(entries).encode())

    def _hold(self, file: Path) -> str:
        """A file's inode, which is not used again while the record has a link to it."""
        inode = str(file.lstat().st_ino)
        if not (self._held / inode).exists():
            os.link(file, self._held / inode, follow_symlinks=False)
        return inode

    def _name(self, directory: Path, new: bool) -> str:
        path = self._names / str(directory.stat().st_ino)
        if new or not path.exists():
            self._replace(path, secrets.token_hex(8).encode())
        return path.read_text()

    def _replace(self, path: Path, content: bytes) -> None:
        """Replace a file in one step: the process may be killed at any time."""
        temporary = self._record / "new"
        temporary.write_bytes(content)
        temporary.replace(path)


@dataclass(frozen=True)
class _SurvivingState:
    """What one power cut leaves of a volume."""

    cache: PageCache
    chance: random.Random
    certain: bool

    def tree(self, directory: Path, id: str) -> Iterator[tuple[Path, Entry]]:
        """Everything below a directory, which comes before what is in it."""
        for name, entry in self._entries(directory, id).items():
            path = directory / name
            yield path, entry
            if entry.is_directory:
                yield from self.tree(path, entry.id)

    def content(self, path: Path, entry: Entry) -> bytes:
        """What a file holds."""
        synced, present = self.cache.synced_content(entry.id), self.cache.present_content(entry.id)
        if self.certain:
            return synced or b""
        return mixture(self.chance, synced or b"", present)

    def _entries(self, directory: Path, id: str) -> Entries:
        synced = self.cache.synced_entries(id)
        if self.certain:
            return synced
        # Another directory may have taken the place of a removed one.
        same = directory.is_dir() and self.cache.directory_id(directory) == id
        present = self.cache.present_entries(directory) if same else {}
        found = {}
        for name in sorted(synced.keys() | present.keys()):
            entry = self.chance.choice([synced.get(name), present.get(name)])
            if entry is not None:
                found[name] = entry
        return found


def mixture(chance: random.Random, before: bytes, after: bytes) -> bytes:
    """What a cut leaves of content that was changed and not synced: some sectors are old, some new, some zeros."""
    if before == after:
        return after
    shorter = min(len(before), len(after))
    kept = next((place for place in range(shorter) if before[place] != after[place]), shorter)
    size = chance.choice([len(before), len(after), chance.randint(kept, max(len(before), len(after)))])
    content = bytearray(before[:kept])
    while len(content) < size:
        place = len(content)
        end = min(size, place - place % SECTOR_BYTES + SECTOR_BYTES)
        source = chance.choice([before, after, b""])
        content += source[place:end].ljust(end - place, b"\0")
    return bytes(content[:size])
