"""Signed updates on their way: the same bytes are sent until the aggregator has them or refuses them for good.

An update that an earlier process signed is sent only if it is still the one of its line in the audit log: its header
and signature have that digest, and all that follows is what the header says. If not, the file is damaged: it is
removed, and its task is answered again from what the trainer dropped.

A refusal is final when the update is not awaited any more, or when all of it was sent and refused. Only then is it
dropped, and both sides know: the audit log says so, and unless it is simply too late, a failure is reported, so that
the round does not wait for this silo.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fedsilo.errors import FileDamaged, Problem
from fedsilo.files.durable import remove, sync_directory, translate_read_errors, unlink
from fedsilo.wire import stored_digest
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.disclosure import DisclosureLog
from fedsilo_agent.guard.exchanges import AuditedTask

log = logging.getLogger("fedsilo.guard")

SETTLED_CODES = frozenset(
    {"already-accepted", "round-closed", "job-finished", "schema-mismatch", "not-ready"}
)
"""Refusals that say that the aggregator does not wait for the update any more."""


class Outbox:
    """The updates in a directory that only the guard writes."""

    def __init__(
        self, directory: Path, client: AggregatorClient, audit: AuditLog, disclosure: DisclosureLog
    ) -> None:
        self._directory = directory
        self._client = client
        self._audit = audit
        self._disclosure = disclosure
        self._signed: dict[str, str] = {}
        self._new: set[str] = set()  # tasks whose update this process has not begun to send
        self._unrecorded: dict[str, str] = {}  # acknowledged updates whose line a full disk did not take

    def clear_unfinished(self) -> None:
        """Remove what a crash left of an update that was not on record yet."""
        for path in self._directory.iterdir():
            if path.suffix != ".update" or path.stem not in self._audit.record.departures:
                remove(path)

    def path(self, task: str) -> Path:
        """Where the signed update of a task lies."""
        return self._directory / f"{task}.update"

    def add(self, task: str, digest: str, **facts: Any) -> None:
        """Put on record that an update of this process, whose file is here and on the disk, departs.

        Its name is on the disk before the line that says so: nothing else may be left of the answer after a power cut,
        and each exchange is answered once.

        :param facts: for the line.
        :raises OSError: when the disk is full; there is no such update then.
        """
        try:
            sync_directory(self._directory)
            self._audit.write("departure", task=task, digest=digest, **facts)
        except OSError:
            self._remove(task)
            raise
        self._signed[task] = digest
        self._new.add(task)

    def holds(self, task: str) -> bool:
        """Whether there is an update for the task; a damaged one is removed."""
        path = self.path(task)
        if not path.exists():
            return False
        if task not in self._signed:
            digest = self._audit.record.departures.get(task)
            if digest is None or _whole_update(path) != digest:
                log.error("%s: damaged, it is not what was signed; the trainer's reply is signed again", path)
                remove(path)
                return False
            self._signed[task] = digest
        return True

    async def send(self, asked: AuditedTask) -> None:
        """Send the update that is held for the task, until it is acknowledged or refused for good."""
        self.record()
        if not self.holds(task := asked.task):
            return
        digest = self._signed[task]
        try:
            new = task in self._new
            self._new.discard(task)
            await self._client.upload(task, self.path(task), digest, new=new)
        except Problem as problem:
            await self.drop(asked, problem)
        else:
            self._unrecorded[task] = digest
            self.record()

    def record(self) -> None:
        """Put on record what was acknowledged, and let go of it.

        The aggregator may be gone by the time at which there is space for the line, so it is not asked again.

        :raises OSError: when the disk is full; the same can be done again.
        """
        for task, digest in list(self._unrecorded.items()):
            self._audit.write("acknowledged", task=task, digest=digest)
            del self._unrecorded[task]
            self._remove(task)

    async def settle(self) -> bool:
        """Send what was signed and not acknowledged so far; whether there was any."""
        self.record()
        held = [path.stem for path in sorted(self._directory.glob("*.update")) if self.holds(path.stem)]
        for task in held:
            await self.send(self._audit.record.audited_task(task))
        return bool(held)

    async def drop(self, asked: AuditedTask, problem: Problem, **facts: Any) -> None:
        """Give up a task after a final refusal, with or without an update of it.

        :param facts: for the audit line.
        """
        log.warning("task %s: %s", asked.task, problem)
        facts = {"code": problem.code, **facts}
        if problem.code in SETTLED_CODES:
            self._audit.write("not-accepted", task=asked.task, round=asked.round, **facts)
        else:
            await self._disclosure.report("not-accepted", asked, problem, **facts)
        self._remove(asked.task)

    def _remove(self, task: str) -> None:
        unlink(self.path(task), missing_ok=True)
        self._signed.pop(task, None)
        self._new.discard(task)


def _whole_update(path: Path) -> str | None:
    """Digest of the update in a file; None where it is damaged."""
    try:
        with translate_read_errors(path):
            return stored_digest(path)
    except (FileDamaged, Problem):
        return None
