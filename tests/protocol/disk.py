"""The disks of a run: each full for a while, damaged, or without what was not synced, as its plan says."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

from fedsilo.files.durable import DiskStep
from tests.faults.page_cache import PageCache
from tests.protocol.plan import Damage

TAKES_SPACE = frozenset({"create", "append", "sync", "rename", "link", "make-directory"})
"""Operations that a full disk refuses."""

OWN_DIRECTORIES = {"aggregator": ("",), "guard": ("inbox", "guard", "audit"), "trainer": ("drop", "state")}
"""Role -> what it writes below its disk."""


class Disk:
    """The disk of one machine.

    :param record: where what is synced is noted, if power may be cut; it is slow.
    :ivar full: whether there is no space.
    """

    def __init__(self, root: Path, record: Path | None) -> None:
        root.mkdir()
        self.root = root
        self.full = False
        self._cache = PageCache(root, record) if record is not None else None

    def take(self, step: DiskStep, perform: Callable[[], None]) -> None:
        """Perform a step of a process.

        :raises OSError: when it needs space that is not there.
        """
        if self.full and step.operation in TAKES_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(step.path))
        if self._cache is None:
            perform()
        else:
            self._cache.take(step, perform)

    def cut(self, chance: random.Random) -> None:
        """Lose power, and with it what was not synced, as a power cut may."""
        assert self._cache is not None
        self._cache.cut(chance)

    def damage(self, role: str, damage: Damage) -> str | None:
        """Change one of the role's files; its name, None where there is none."""
        files = sorted(
            path
            for name in OWN_DIRECTORIES[role]
            for path in (self.root / name).rglob("*")
            if path.is_file() and path.name not in ("lock", "status.json")
        )
        if not files:
            return None
        path = files[damage.file % len(files)]
        content = bytearray(path.read_bytes())
        position = len(content) * damage.position // 100
        if damage.kind == "remove":
            path.unlink()
            return f"{path.relative_to(self.root)} removed"
        if damage.kind == "flip" and content:
            content[position] ^= 1 << damage.position % 8
        elif damage.kind == "cut":
            del content[position:]
        else:
            content[position:] = bytes(len(content) - position)
        path.write_bytes(content)
        return f"{path.relative_to(self.root)} damaged ({damage.kind} at {position})"
