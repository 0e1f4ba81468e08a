"""What the guard has handed over, as far as it holds.

Files that an earlier guard left may be damaged, and a restarted trainer may see them before a restarted guard has
checked them. So the trainer checks what lay there when it started, and gives the guard time to replace it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any

from fedsilo.errors import FileDamaged
from fedsilo.files.durable import require_content
from fedsilo.files.json_files import Fields, read_with_digest
from fedsilo.silo.volume import Volume

log = logging.getLogger("fedsilo.trainer")

REPAIR_SECONDS = 60.0
"""Time that the guard gets to replace a damaged file, which it does when it starts again."""

TASK_FIELDS: Fields = {"task": str, "step": str, "acknowledged": (str, NoneType)}

REMEDY = "start the silo's guard again, which replaces it"


class TrainerInbox:
    """The trainer's view of the volume's inbox, which it only reads."""

    def __init__(self, volume: Volume) -> None:
        self._task = volume.task
        self._blobs = volume.blobs
        self._unchecked = {path.name for path in volume.blobs.iterdir()} if volume.blobs.is_dir() else set()
        self._damaged: dict[str, tuple[tuple[int, int], FileDamaged]] = {}
        self._repaired_until: float | None = None

    def task(self) -> dict[str, Any] | None:
        """The task that the guard has put there; None while there is none, or a damaged one that the guard may replace.

        :raises FileDamaged: when it stays damaged.
        """
        try:
            return read_with_digest(self._task, REMEDY, TASK_FIELDS)
        except FileDamaged as damage:
            if self._may_be_repaired(damage):
                return None
            raise

    def is_whole(self, digests: Iterable[str]) -> bool:
        """Whether to go on with blobs: they hold, or it is time to say that they do not (`require_whole`)."""
        try:
            self.require_whole(digests)
        except FileDamaged as damage:
            return not self._may_be_repaired(damage)
        self._repaired_until = None
        return True

    def require_whole(self, digests: Iterable[str]) -> None:
        """Check the blobs that this process has not seen arrive, and that all are there.

        :raises FileDamaged: naming the first one that is missing or does not have the digest of its name.
        """
        for digest in digests:
            if digest in self._unchecked or not (self._blobs / digest).exists():
                self._require(self._blobs / digest)
                self._unchecked.discard(digest)

    def _require(self, path: Path) -> None:
        found = path.stat() if path.exists() else None
        version = (found.st_ino, found.st_mtime_ns) if found else (0, 0)
        known = self._damaged.get(path.name)
        if known is not None and known[0] == version:
            raise known[1]  # as it was the last time: a large file is not read twenty times a second
        try:
            require_content(path, path.name, REMEDY)
        except FileDamaged as damage:
            self._damaged[path.name] = version, damage
            raise

    def _may_be_repaired(self, damage: FileDamaged) -> bool:
        now = time.monotonic()
        if self._repaired_until is None:
            log.warning("%s; waiting for the guard to do so", damage)
            self._repaired_until = now + REPAIR_SECONDS
        return now < self._repaired_until
