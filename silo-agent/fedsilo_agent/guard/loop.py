"""The guard fetches a task, lets the trainer answer it, has the answer signed, and sends it until it is durable.

What a task is answered with, and what goes on record with it, is the matter of `AnswerRunner`; what the trainer says
and drops, of `TrainerAnnouncement` and `DropDirectory`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from fedsilo.api.conditions import GuardState
from fedsilo.errors import FedsiloError, PolicyRefused, Problem
from fedsilo.files.full_disk import retry_while_disk_full
from fedsilo.http.threads import shielded_call
from fedsilo.logs import concerning
from fedsilo.wire import FINISH, Contract, Task
from fedsilo.wire.problems import one_line
from fedsilo_agent.guard.announced import TrainerAnnouncement
from fedsilo_agent.guard.answering import AnswerRunner
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.disclosure import DisclosureLog
from fedsilo_agent.guard.drops import DropDirectory
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.heartbeat import Heartbeat
from fedsilo_agent.guard.inbox import AUDIT_LINES, Inbox
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.guard.task_source import TaskSource, VerifiedTask
from fedsilo_agent.guard.text import bounded_text

log = logging.getLogger("fedsilo.guard")

T = TypeVar("T")

OUTBOX_SECONDS = 3.0
"""Time to settle an update that was on its way when the job ended; the aggregator may be gone already."""


class Guard:
    """One silo's guard for one job, over the shared volume.

    :raises AuditBroken: when the audit log was changed.
    """

    def __init__(self, job: GuardedJob) -> None:
        check, client, volume = job.check, job.client, job.volume
        self._audit = AuditLog(volume.audit, job.report)
        self._heartbeat = Heartbeat(client)
        self._tasks = TaskSource(client, check, self._audit, self._heartbeat)
        self._inbox = Inbox(volume, client, check)
        self._inbox.require_whole(self._audit)
        self._disclosure = DisclosureLog(check, client, self._audit)
        self._outbox = Outbox(volume.outbox, client, self._audit, self._disclosure)
        self._drops = DropDirectory(volume.drop)
        self._announced = TrainerAnnouncement(check, self._drops, client, self._audit)
        self._answering = AnswerRunner(job, self._audit, self._inbox, self._outbox)

    async def run(self) -> None:
        """Answer tasks until the job ends."""
        await self._answering.begin()
        self._outbox.clear_unfinished()
        await asyncio.to_thread(self._inbox.withdraw_stale_task, self._outbox.holds)
        last = self._inbox.last_task()
        if last is not None and last["step"] == FINISH:
            # An earlier process was told so, and the aggregator may have gone since.
            await self._finish(last)
            return
        await self._settle()
        next_task = self._ask(after="")
        work: asyncio.Task[None] | None = None
        try:
            while True:
                verified = await next_task
                if work is not None:
                    await _cancel(work)
                finished, before = verified.task.step == FINISH, self._audit.record.last_acknowledged
                if finished:
                    await self._finish(self._inbox.document(verified.task, None))
                    await self._tasks.confirm_end()
                    return
                await self._settle()
                # An answer that was under way when its task was given again, as after a restart, has arrived by now.
                arrived = self._audit.record.last_acknowledged == verified.task.task != before
                work = None if arrived else asyncio.create_task(self._answer(verified))
                next_task = self._ask(after=verified.task.task)
                # A newer task ends the wait for an older one: the round was closed without this silo.
                running = [task for task in (work, next_task) if task is not None]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if work is not None and work.done():
                    await work
        finally:
            next_task.cancel()
            if work is not None:
                work.cancel()
            self._heartbeat.stop()

    async def _with_space(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what may be repeated, as often as it takes while the disk is full, and tell so."""
        return await retry_while_disk_full(work, lambda: self._heartbeat.telling(GuardState.STORAGE_FULL))

    async def _settle(self) -> None:
        if await self._with_space(self._outbox.settle):
            self._tasks.mark_answered()

    def _ask(self, after: str) -> asyncio.Task[VerifiedTask]:
        return asyncio.create_task(self._with_space(lambda: self._tasks.next_task(after)))

    async def _answer(self, verified: VerifiedTask) -> None:
        with concerning(round=verified.task.round):
            await self._with_space(lambda: self._work(verified))
        self._tasks.mark_answered()

    async def _work(self, verified: VerifiedTask) -> None:
        """Answer a task, or report why not; safe to begin again wherever it was interrupted."""
        task = verified.task
        try:
            if not self._outbox.holds(task.task):
                # A task that is refused never reaches the trainer.
                contract = await self._announced.contract(task)
                answer = await self._answering.prepare(verified, contract)
                if answer.dropped is not None:
                    await self._have_trained(task, answer.dropped)
                await shielded_call(asyncio.to_thread(answer.sign))
            await self._outbox.send(verified.audited_task)
        except PolicyRefused as refusal:
            log.error("refused: %s", one_line(bounded_text(str(refusal))))
            await self._disclosure.report("refused", verified.audited_task, refusal)
        except Problem as problem:
            await self._outbox.drop(verified.audited_task, problem, **self._announced.facts(problem))
        except FedsiloError as error:
            log.error("task %s: %s: %s", task.task, error.reason, one_line(bounded_text(str(error))))
            await self._disclosure.report("failed", verified.audited_task, error)

    async def _have_trained(self, task: Task, contract: Contract) -> None:
        """Give a task to the trainer, and return when its drop is complete."""
        found = self._drops.is_complete(task.task)
        acknowledged = self._audit.record.acknowledged_before(task.task)
        await self._inbox.put(task, acknowledged, self._audit.lines)
        await self._drops.complete(task.task, contract, found)

    async def _finish(self, last: Mapping[str, Any]) -> None:
        """Tell the trainer that the job is over.

        :param last: the task that says so, for the inbox.
        """
        # It may overtake the response to an upload, which must not count as lost then.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OUTBOX_SECONDS):
                await self._settle()

        async def record() -> None:
            self._outbox.record()
            acknowledged = self._audit.record.acknowledged_before(last["task"])
            self._inbox.write({**last, "acknowledged": acknowledged, AUDIT_LINES: self._audit.lines})
            if not self._audit.record.finished:
                self._audit.write("finished", succeeded=bool(last["settings"].get("succeeded")))

        await self._with_space(record)


async def _cancel(work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.wait({work})
