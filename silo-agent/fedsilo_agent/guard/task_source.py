"""Where the guard's tasks come from: the aggregator, asked again and again, and never faster than makes sense.

An honest aggregator holds a request until there is something new. One that answers at once, with nothing or with
tasks that replace each other, is asked more and more slowly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass

from fedsilo.api.conditions import GuardState
from fedsilo.errors import FedsiloError, Problem
from fedsilo.silo.withholding import sentence
from fedsilo.wire import FINISH, Task, task_digest
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.exchanges import AuditedTask
from fedsilo_agent.guard.heartbeat import Heartbeat
from fedsilo_agent.guard.task_check import TaskCheck
from fedsilo_agent.guard.text import bounded_text

log = logging.getLogger("fedsilo.guard")

LONG_POLL_SECONDS = 25.0
"""Longest time that the aggregator may hold a request for the next task."""

QUICK_SECONDS = 1.0
"""An answer that comes sooner counts as quick."""

FREE_ANSWERS = 2
"""Quick answers in a row without a pause: an upload's answer may be overtaken by the next task."""

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.05, 2.0
"""Pauses after further quick answers, doubling from the first to the last."""

UNTRUSTED_TASK_SECONDS = 0.5
"""Pause before asking again after a task that was not the aggregator's."""

CONFIRM_SECONDS = 10.0
"""Time to tell the aggregator that the end is known; it waits for that for a while, and may be gone already."""


@dataclass(frozen=True)
class VerifiedTask:
    """A task of the job's aggregator and the digest of its sealed bytes."""

    task: Task
    digest: bytes

    @property
    def audited_task(self) -> AuditedTask:
        """The task as the audit log names it."""
        return AuditedTask(self.task.task, self.task.round, self.task.phase, self.digest.hex())


class TaskSource:
    """The tasks that the job's aggregator gives to this silo.

    :param audit: where refused tasks are recorded; None when the log cannot be used.
    :param heartbeat: what tells that the log is full.
    """

    def __init__(
        self,
        client: AggregatorClient,
        check: TaskCheck,
        audit: AuditLog | None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._client = client
        self._check = check
        self._audit = audit
        self._heartbeat = heartbeat
        self._quick = 0

    def mark_answered(self) -> None:
        """The last task was answered: the next one may come at once."""
        self._quick = 0

    async def next_task(self, after: str) -> VerifiedTask:
        """The task that follows the one called `after`; what may not be obeyed is refused and recorded."""
        refused = ""
        while True:
            await self._pause()
            asked = time.monotonic()
            sealed = await self._client.task(after, LONG_POLL_SECONDS)
            self._quick = self._quick + 1 if time.monotonic() - asked < QUICK_SECONDS else 0
            if sealed is None:
                continue
            try:
                return VerifiedTask(self._check.open(sealed), task_digest(sealed))
            except Problem as problem:
                # Recorded once, however often it is offered.
                if str(problem) != refused:
                    self._refuse(problem)
                    refused = str(problem)
                await asyncio.sleep(UNTRUSTED_TASK_SECONDS)

    async def confirm_end(self) -> None:
        """Ask for what follows the end: the answer that tells it can be lost on the way, so the aggregator waits."""
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._client.task(FINISH, 0)
        except (TimeoutError, Problem) as error:
            log.info(
                "the aggregator was not told that the end is known: %s",
                bounded_text(str(error) or "no answer"),
            )

    def _refuse(self, problem: Problem) -> None:
        log.error("refused a task: %s", bounded_text(str(problem)))
        if self._audit is not None:
            self._audit.write("task-refused", code=problem.code, detail=problem.detail)

    async def _pause(self) -> None:
        full = self._audit.allowance.seconds_left() if self._audit is not None else 0.0
        if full > 0:
            log.warning("refusals and failures fill the audit log; asking for the next task in %.0f s", full)
        more = self._quick - FREE_ANSWERS
        quick = min(FIRST_PAUSE_SECONDS * 2 ** min(more, 10), LAST_PAUSE_SECONDS) if more > 0 else 0.0
        if full or quick:
            heartbeat = self._heartbeat if full > 0 else None
            with nullcontext() if heartbeat is None else heartbeat.telling(GuardState.AUDIT_FULL):
                await asyncio.sleep(max(full, quick))


async def decline(client: AggregatorClient, check: TaskCheck, why: FedsiloError) -> None:
    """Report a failure for every task, so that no round waits for this silo until its deadline.

    Without a log nothing tells what was reported before: each report is in the same fixed words.
    """
    log.error("%s: %s; every task is declined until a person has looked at it", why.reason, why)
    tasks, after = TaskSource(client, check, None), ""
    while after != FINISH:
        after = (await tasks.next_task(after)).task.task
        if after != FINISH:
            try:
                await client.report_failure(after, why.reason, sentence(why.reason))
                tasks.mark_answered()
            except Problem as problem:
                log.warning("the failure of task %s was not taken: %s", after, problem)
    await tasks.confirm_end()
