"""Whole directories, changed as disks, crashes and people change them: files, names, links, kinds and permissions.

The changes are drawn from bytes, so that a directory is a target like any other: its input says what happens to it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.fuzz.mutation import Choose, mutated_input

MAX_CHANGES = 4
MAX_INPUT = 40
"""Bytes of one input, from which so many changes can be drawn."""

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files cost least."""

NEW_NAMES = ("copy", ".0123456789abcdef.tmp", "0" * 64, "r00002-train-s2.part", "x.update", "\u00f6" * 100)

OUTSIDE_DIRECTORY = "elsewhere"
"""A directory beside the one that is changed: links may lead there, and what is in it may not change."""


def recipe(_: Sequence[bytes], choose: Choose) -> bytes:
    """Draw an input of random bytes, from which changes are drawn."""
    return bytes(choose(256) for _ in range(choose(MAX_INPUT)))


@dataclass(frozen=True)
class Directory:
    """A directory that a program opens again.

    :param make: writes the honest one.
    :param reopen: what a program does with it after a restart; gives what must not depend on any damage.
    :param refusals: the errors with which it may refuse it.
    :param within: the part of it that is changed.
    :param without: paths that no change takes away or replaces, since nothing else says what was there.
    :param own: the part of which nothing is gone after a refusal.
    :param hostile: whether somebody writes there who can also put a pipe in a file's place.
    """

    make: Callable[[Path], None]
    reopen: Callable[[Path], object]
    refusals: tuple[type[Exception], ...]
    within: str = "."
    without: frozenset[Path] = frozenset()
    own: str = "."
    hostile: bool = False

    def parse(self, data: bytes) -> object:
        """Change a copy as the input says, and reopen it.

        :raises AssertionError: when that gives something else, or when it is refused and something honest is gone.
        """
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            root, elsewhere = Path(folder, "root"), Path(folder, OUTSIDE_DIRECTORY)
            self._copy_to(root)
            elsewhere.mkdir()
            (elsewhere / "file").write_text("of somebody else")
            without = frozenset(root / path for path in self.without)
            Change(root / self.within, elsewhere, without, self.hostile).apply(data)
            honest, own = self._honest_files.items(), Path(self.own)
            whole = {
                entry for entry in files(root).items() if entry in honest and entry[0].is_relative_to(own)
            }
            try:
                found = self.reopen(root)
            except self.refusals:
                gone = whole - files(root).items()
                assert not gone, f"refused, after {[str(path) for path, _ in gone]} had been changed"
                raise
            finally:
                assert files(elsewhere)[Path("file")] == b"of somebody else"
            assert found == self._expected_result, f"taken, and not as it was written: {found}"
            return found

    def _copy_to(self, root: Path) -> None:
        root.mkdir()
        for path, content in self._honest_files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                (root / path).mkdir(exist_ok=True)
            else:
                (root / path).write_bytes(content)

    @cached_property
    def _honest_files(self) -> dict[Path, bytes | None]:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            self.make(Path(folder))
            return files(Path(folder))

    @cached_property
    def _expected_result(self) -> object:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            self._copy_to(Path(folder, "root"))
            return self.reopen(Path(folder, "root"))


def files(root: Path) -> dict[Path, bytes | None]:
    """Every entry below a directory: the content of plain files, None for what is none."""
    return {
        path.relative_to(root): path.read_bytes() if _is_file(path) else None
        for path in sorted(root.rglob("*"))
    }


@dataclass(frozen=True)
class Change:
    """Changes to one directory; parameters as those of `Directory`."""

    root: Path
    elsewhere: Path
    without: frozenset[Path]
    hostile: bool

    def apply(self, data: bytes) -> None:
        """Make the changes that the bytes say, at most `MAX_CHANGES`."""
        choose = Choices(data)
        for _ in range(MAX_CHANGES):
            if choose.are_used_up:
                return
            steps = [*self._STEPS, Change.pipe] if self.hostile else self._STEPS
            step = steps[choose(len(steps))]
            step(self, self._one(choose), choose)

    def _paths(self) -> list[Path]:
        return [path for path in sorted(self.root.rglob("*")) if path not in self.without]

    def _one(self, choose: Choose) -> Path:
        paths = self._paths()
        return paths[choose(len(paths))] if paths else self.root / "new"

    def edit(self, path: Path, choose: Choose) -> None:
        """Change some bytes, or mix them with those of another file."""
        if _is_file(path):
            other = self._one(choose)
            seeds = [path.read_bytes(), *([other.read_bytes()] if _is_file(other) else [])]
            path.write_bytes(mutated_input(seeds, choose))

    def zero_bytes(self, path: Path, choose: Choose) -> None:
        """What a disk has allocated and never written."""
        if _is_file(path):
            content = path.read_bytes()
            start = choose(len(content) + 1)
            path.write_bytes(content[:start] + bytes(len(content) - start))

    def remove(self, path: Path, _: Choose) -> None:
        """Delete a file or folder."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def copy(self, path: Path, choose: Choose) -> None:
        """Put a copy in another's place."""
        other = self._one(choose)
        if other.exists() and other not in (path, *path.parents) and path not in other.parents:
            self.remove(path, choose)
            _copy(other, path)

    def exchange(self, path: Path, choose: Choose) -> None:
        """Let two change names."""
        other = self._one(choose)
        if (
            path.exists()
            and other.exists()
            and other not in (path, *path.parents)
            and path not in other.parents
        ):
            aside = self.elsewhere.with_name("aside")
            path.rename(aside)
            other.rename(path)
            aside.rename(other)

    def rename(self, path: Path, choose: Choose) -> None:
        """Give it another name."""
        new = path.with_name(NEW_NAMES[choose(len(NEW_NAMES))])
        if path.exists() and not new.exists():
            path.rename(new)

    def add(self, path: Path, choose: Choose) -> None:
        """Something more beside it: a copy of it, bytes, or a directory."""
        new = path.with_name(NEW_NAMES[choose(len(NEW_NAMES))])
        if os.path.lexists(new) or not path.exists():
            return
        match choose(3):
            case 0:
                _copy(path, new)
            case 1:
                new.write_bytes(b"{}")
            case _:
                new.mkdir()
                (new / "file").write_bytes(b"something")

    def link(self, path: Path, choose: Choose) -> None:
        """A link in its place: to another, to itself, to nothing, out of the directory."""
        targets = (self._one(choose), path, self.root / "nothing", self.elsewhere, self.elsewhere / "file")
        target = targets[choose(len(targets))]
        self.remove(path, choose)
        path.symlink_to(target)

    def folder(self, path: Path, _: Choose) -> None:
        """A directory in its place."""
        self.remove(path, _)
        path.mkdir()
        (path / "file").write_bytes(b"something")

    def forbid(self, path: Path, choose: Choose) -> None:
        """Permissions that nobody meant."""
        if not path.is_symlink() and path.exists():
            path.chmod((0o000, 0o400, 0o200, 0o777, 0o4755)[choose(5)])

    def pipe(self, path: Path, choose: Choose) -> None:
        """A pipe in its place, at whose other end nobody writes."""
        self.remove(path, choose)
        os.mkfifo(path)

    _STEPS = (edit, edit, zero_bytes, remove, copy, exchange, rename, add, link, folder, forbid)


class Choices:
    """Numbers drawn from bytes, zero once these are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def __call__(self, n: int) -> int:
        """A number from 0 to n - 1."""
        size = max(1, ((n - 1).bit_length() + 7) // 8)
        piece = self._data[self._place : self._place + size]
        self._place += size
        return int.from_bytes(piece) % n

    @property
    def are_used_up(self) -> bool:
        """Whether all bytes were taken."""
        return self._place >= len(self._data)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source, target, symlinks=True, copy_function=lambda old, new: _copy(Path(old), Path(new))
        )
    elif source.is_file():
        target.write_bytes(source.read_bytes())
