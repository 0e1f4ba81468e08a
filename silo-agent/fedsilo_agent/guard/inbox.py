"""What the guard hands to the trainer: the task, and its blobs as the aggregator signed for them.

A blob is named by its digest. One that this process fetched has been checked; one that an earlier process left is
checked before the trainer is told of it, and is fetched again if it is damaged.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.files.durable import remove, require_content, unlink
from fedsilo.files.json_files import Fields, read_with_digest, write_with_digest
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.volume import Volume
from fedsilo.wire import BlobLink, Task
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.task_check import TaskCheck

log = logging.getLogger("fedsilo.guard")

MAX_VOLUME_SHARE = 0.9
"""Part of the volume's free space that a task's blobs may take: the aggregator must not fill the silo's disk."""

AUDIT_LINES = "auditLines"
"""Field of a task's file: lines of the audit log when the task was given to the trainer."""

_FIELDS: Fields = {"task": str, "step": str, "settings": dict}


class Inbox:
    """The guard's side of the volume's inbox."""

    def __init__(self, volume: Volume, client: AggregatorClient, check: TaskCheck) -> None:
        self._volume = volume
        self._client = client
        self._check = check
        self._handed_over: set[str] = set()
        self._checked: set[str] = set()

    async def put(self, task: Task, acknowledged: str | None, audit_lines: int) -> None:
        """Fetch the task's blobs and give it to the trainer.

        :param acknowledged: the last task whose update the aggregator has.
        :param audit_lines: that the audit log has by now.
        :raises PolicyRefused: when its blobs are too large for the volume.
        :raises Problem: when a blob cannot be had.
        :raises OSError: when there is no space now.
        """
        digests = {link.digest for link in self._of_trainer(task)}
        # The task before counts too: an evaluation between two rounds must not make both fetch the same encoders.
        for path in self._volume.blobs.iterdir():
            if path.name.removeprefix(".").removesuffix(".part") not in digests | self._handed_over:
                remove(path)
        self._handed_over = digests
        missing = await asyncio.to_thread(self._missing_blobs, task)
        self._require_space(task, sum(link.length for link in missing))
        for link in missing:
            await self._client.download(link, self._path(link))
            self._checked.add(link.digest)
        self.write({**self.document(task, acknowledged), AUDIT_LINES: audit_lines})

    def document(self, task: Task, acknowledged: str | None) -> dict[str, Any]:
        """A task as the trainer is told it."""
        return {
            "task": task.task,
            "step": task.step,
            "phase": task.phase,
            "round": task.round,
            "trees": {link.name: link.digest for link in self._of_trainer(task)},
            "settings": dict(task.settings),
            "acknowledged": acknowledged,
        }

    def write(self, document: Mapping[str, Any]) -> None:
        """Give a task to the trainer whose blobs, if any, are there."""
        write_with_digest(self._volume.task, document)

    def last_task(self) -> Mapping[str, Any] | None:
        """What was given to the trainer last, also by an earlier process; None where that cannot be told."""
        try:
            return read_with_digest(self._volume.task, fields=_FIELDS)
        except FileDamaged:
            return None

    def require_whole(self, audit: AuditLog) -> None:
        """Check that the audit log has what it had when the last task was given to the trainer.

        :raises AuditBroken: when it has fewer lines.
        """
        last = self.last_task() or {}
        if audit.lines < (given := last.get(AUDIT_LINES, 0)):
            raise AuditBroken(
                f"{audit.path}: has {audit.lines} lines, and had {given} when task {last['task']} was given to the "
                "trainer; restore it from a backup"
            )

    def withdraw_stale_task(self, is_answered: Callable[[str], bool]) -> None:
        """Withdraw a task that an earlier process gave, if its answer is here, or what it handed out is not whole.

        The aggregator may be away for long after a power cut. A trainer that starts meanwhile, and whose drop is lost,
        would do all of a task again whose update only has to be sent, or would report the damage.

        :param is_answered: whether the guard has the signed update of a task.
        """
        last = self.last_task()
        if last is None:
            return
        whole = all(self._is_whole(digest) for digest in last.get("trees", {}).values())
        if not whole or is_answered(last["task"]):
            unlink(self._volume.task)

    def path(self, task: Task, name: str) -> Path | None:
        """File of a blob of a task that was put here; None where it has none of this name."""
        return next((self._path(link) for link in task.blobs if link.name == name), None)

    def _path(self, link: BlobLink) -> Path:
        return self._volume.blobs / link.digest

    def _missing_blobs(self, task: Task) -> list[BlobLink]:
        return [link for link in self._of_trainer(task) if not self._is_whole(link.digest)]

    def _of_trainer(self, task: Task) -> list[BlobLink]:
        """The task's blobs without messages of other silos, which only the guard reads."""
        return [link for link in task.blobs if not self._check.plan.is_for_guards(link.name)]

    def _is_whole(self, digest: str) -> bool:
        """Whether a blob is here; a damaged one is removed."""
        path = self._volume.blobs / digest
        if not path.exists():
            return False
        if digest not in self._checked:
            try:
                require_content(path, digest)
            except FileDamaged:
                log.warning("%s: damaged, its bytes are not those of its name; fetching it again", path)
                remove(path)
                return False
            self._checked.add(digest)
        return True

    def _require_space(self, task: Task, needed: int) -> None:
        usage = shutil.disk_usage(self._volume.blobs)
        if needed > usage.total * MAX_VOLUME_SHARE:
            raise PolicyRefused(
                f"task {task.task}: its blobs have {needed} bytes, the silo's volume has {usage.free} free"
            )
        if needed > usage.free * MAX_VOLUME_SHARE:
            text = (
                f"{os.strerror(errno.ENOSPC)}: task {task.task} needs {needed} bytes, {usage.free} are free"
            )
            raise OSError(errno.ENOSPC, text)
