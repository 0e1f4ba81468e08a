"""Waiting for what the trainer writes: it may come late, be damaged by a power cut, or be the report of a failure."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from pathlib import Path

from fedsilo.errors import FedsiloError, FileDamaged, PolicyRefused
from fedsilo.silo.drop import REPLY
from fedsilo.silo.file_watch import ChangeWait, FileWatcher
from fedsilo.silo.trainer_files import read_object
from fedsilo.wire import Contract
from fedsilo_agent.guard.dropped_reply import require_undamaged

log = logging.getLogger("fedsilo.guard")

REPAIR_SECONDS = 60.0
"""Time that a trainer gets to replace a damaged file, which it does when it starts again."""

REASON = re.compile(r"[A-Z][A-Za-z]{0,63}")
"""Reasons that the aggregator takes; see docs/wire.md."""

FAILURE = "failed.json"


class TrainerFailed(FedsiloError):
    """The trainer reported that it cannot answer."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class DropDirectory:
    """What the trainer writes, in one directory; one thing at a time is waited for.

    :param directory: the volume's.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._changes = FileWatcher()

    def waiting(self, *more: Path) -> ChangeWait:
        """A wait for something in the directory, or in these others."""
        return self._changes.waiting(self.directory, *more)

    def is_complete(self, task: str) -> bool:
        """Whether the drop of a task is there."""
        return os.path.lexists(self.directory / task / REPLY)

    def raise_failure(self, task: str = "") -> None:
        """Return unless the trainer has reported that it cannot answer a task, or anything at all.

        :raises TrainerFailed: with its words.
        """
        for path in dict.fromkeys((self.directory / task / FAILURE, self.directory / FAILURE)):
            if os.path.lexists(path):
                raise TrainerFailed(*read_failure(path))

    async def complete(self, task: str, contract: Contract, found: bool) -> None:
        """Return when the drop of a task is complete.

        :param contract: what may leave of it.
        :param found: whether it was before the trainer was given the task: a power cut may have torn it.
        """
        if found:
            await self.check_found(task, contract)
        waiting = self.waiting(self.directory / task)
        while not self.is_complete(task):
            self.raise_failure(task)
            await waiting.change()

    async def check_found(self, task: str, contract: Contract) -> None:
        """Return when a drop that was there already holds, or is gone: a trainer that starts removes a damaged one."""
        drop = self.directory / task
        waiting, repair = self.waiting(drop), DamageTimeout()
        while self.is_complete(task):
            try:
                await asyncio.to_thread(require_undamaged, drop, contract)
                return
            except FileDamaged as damage:
                repair.check(damage)
            except PolicyRefused:
                if self.is_complete(task):
                    raise
            await waiting.change()


class DamageTimeout:
    """The time that the trainer gets to replace a damaged file."""

    def __init__(self) -> None:
        self._until: float | None = None

    def check(self, damage: FileDamaged) -> None:
        """Log the damage the first time.

        :raises FileDamaged: the damage itself, when the time is over.
        """
        now = time.monotonic()
        if self._until is None:
            log.warning("%s; waiting for the trainer to replace it", damage)
            self._until = now + REPAIR_SECONDS
        elif now >= self._until:
            raise damage


def read_failure(path: Path) -> tuple[str, str]:
    """Reason and message of a `failed.json` of the trainer."""
    document = read_object(path)
    reason, message = document.get("reason"), document.get("message")
    if not isinstance(reason, str) or not REASON.fullmatch(reason) or not isinstance(message, str):
        raise PolicyRefused(
            f"{path.name}: not a failure report with a reason in one CamelCase word and a message"
        )
    return reason, message
