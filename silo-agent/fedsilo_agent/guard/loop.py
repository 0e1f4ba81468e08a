"""The guard's work: fetch a task, let the trainer answer it, check and sign the answer, send it until it is durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.errors import FedsiloError, FileDamaged, PolicyRefused, Problem
from fedsilo.files.durable import unlink
from fedsilo.files.full_disk import done_when_there_is_space
from fedsilo.http.threads import uninterrupted
from fedsilo.logs import concerning
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.announcement import Schema, announced_schema
from fedsilo.silo.drop import REPLY
from fedsilo.silo.handed_out import trainer_adds_noise
from fedsilo.silo.ledger_head import LedgerHead
from fedsilo.silo.private_update import MODEL, UpdateNoise
from fedsilo.silo.release import ReleaseRules
from fedsilo.silo.secret import Secret
from fedsilo.silo.volume import Volume
from fedsilo.silo.waking import Changes
from fedsilo.wire import FINISH, Contract, ModelSignature, SigningKey, Task
from fedsilo.wire.problems import one_line
from fedsilo_agent.guard.agreement import Agreement
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.charging import Charging
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.disclosure import Disclosure
from fedsilo_agent.guard.dropped_reply import DroppedReply, require_undamaged
from fedsilo_agent.guard.exchanges import (
    initial_weights_of,
    require_new_model,
    require_same_answer,
    require_same_initial_weights,
    require_same_records,
)
from fedsilo_agent.guard.inbox import Inbox
from fedsilo_agent.guard.inspection import Announcement, read_announcement, read_failure
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.guard.report import ReceiptsReport
from fedsilo_agent.guard.signing import SignedUpdate, sign_reply, sign_vector
from fedsilo_agent.guard.sum_secrets import Rows, SumSecrets, is_step
from fedsilo_agent.guard.task_check import TaskCheck
from fedsilo_agent.guard.task_source import TaskSource, VerifiedTask
from fedsilo_agent.guard.text import bounded

log = logging.getLogger("fedsilo.guard")

REPAIR_SECONDS = 60.0
"""Time that a trainer gets to replace a damaged file, which it does when it starts again."""

OUTBOX_SECONDS = 3.0
"""Time to settle an update that was on its way when the job ended; the aggregator may be gone already."""


class TrainerFailed(FedsiloError):
    """The trainer reported that it cannot answer."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Guard:
    """One silo's guard for one job, over the shared volume.

    :param report: what is said outside of what left.
    :param ledgers: the institution's directory of what was learned of its datasets, over all jobs.
    :raises AuditBroken: when the audit log was changed.
    """

    def __init__(
        self,
        check: TaskCheck,
        volume: Volume,
        key: SigningKey,
        client: AggregatorClient,
        report: ReceiptsReport | None = None,
        ledgers: Path | None = None,
    ) -> None:
        self._check = check
        self._charging = Charging(check, ledgers, report)
        self._volume = volume
        self._key = key
        self._audit = AuditLog(volume.audit, report)
        self._tasks = TaskSource(client, check, self._audit)
        self._inbox = Inbox(volume, client)
        self._disclosure = Disclosure(check, client, self._audit)
        self._outbox = Outbox(volume.outbox, client, self._audit, self._disclosure)
        self._sums = SumSecrets(volume.sums, check, key, client)
        self._agreement = Agreement(check, client, self._audit)
        self._changes = Changes()
        self._secret = Secret(volume.guard_secret)

    async def run(self) -> None:
        """Answer tasks until the job ends."""
        await asyncio.to_thread(self._charging.begin, self._audit.record.ledger)
        self._outbox.clear_unfinished()
        await asyncio.to_thread(self._inbox.take_back, self._outbox.holds)
        last = self._inbox.last()
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

    async def _settle(self) -> None:
        if await done_when_there_is_space(self._outbox.settle):
            self._tasks.answered()

    def _ask(self, after: str) -> asyncio.Task[VerifiedTask]:
        return asyncio.create_task(done_when_there_is_space(lambda: self._tasks.next(after)))

    async def _answer(self, verified: VerifiedTask) -> None:
        with concerning(round=verified.task.round):
            await done_when_there_is_space(lambda: self._work(verified))
        self._tasks.answered()

    async def _work(self, verified: VerifiedTask) -> None:
        """Answer a task, or report why not; safe to begin again wherever it was interrupted."""
        task = verified.task
        try:
            if not self._outbox.holds(task.task):
                # A task that is refused never reaches the trainer.
                self._check.require_covered()
                contract = await self._contract(task)
                self._require_permitted(verified, contract)
                rows = await self._sums.fetch(task)
                if is_step(task):
                    await uninterrupted(asyncio.to_thread(self._sign_message, verified, contract, rows))
                else:
                    await asyncio.to_thread(self._charging.require_whole, self._audit.record.ledger)
                    found = os.path.lexists(self._volume.drop / task.task / REPLY)
                    await self._inbox.put(task, self._audit.record.acknowledged_before(task.task))
                    await self._wait_for_drop(task, contract.summed or contract, found)
                    await uninterrupted(asyncio.to_thread(self._sign, verified, contract, rows))
            await self._outbox.send(verified.asked)
        except PolicyRefused as refusal:
            log.error("refused: %s", one_line(bounded(str(refusal))))
            await self._disclosure.report("refused", verified.asked, refusal)
        except Problem as problem:
            await self._outbox.drop(verified.asked, problem, **self._agreement.facts(problem))
        except FedsiloError as error:
            log.error("task %s: %s: %s", task.task, error.reason, one_line(bounded(str(error))))
            await self._disclosure.report("failed", verified.asked, error)

    def _require_permitted(self, verified: VerifiedTask, contract: Contract) -> None:
        """Check that this may leave, by the silo's policy as it is now and by what has left before."""
        task, record = verified.task, self._audit.record
        self._check.require_permitted(task, contract, record.sent_before(verified.asked.key))
        self._check.schedule.require_due(task, verified.digest.hex(), record.answered, record.reported)
        if is_step(task):
            return
        require_same_initial_weights(task, record.initial_weights)
        if (model := self._check.model_of_sum(task)) is not None:
            require_new_model(task, model, record.answered)

    async def _contract(self, task: Task) -> Contract:
        announcement, schema = await self._announced_data()
        try:
            signature = ModelSignature.from_dict(announcement.signature)
        except Problem as problem:
            raise PolicyRefused(f"signature.json: {problem}") from problem
        self._require_as_before(signature, announcement, schema)
        contract = self._check.contract(task, signature, schema)
        await self._agreement.reach(schema, announcement.findings)
        return contract

    async def _announced_data(self) -> tuple[Announcement, Schema | None]:
        """What the trainer announces, and the schema in it; that its data cannot be used is told beforehand."""
        waiting = self._changes.waiting(self._volume.drop)
        while True:
            announcement = await self._announced()
            schema = announced_schema(announcement.schema)
            if announcement.signature is not None or (schema is None and announcement.findings is None):
                return announcement, schema
            # The aggregator names this silo's faults beside those of the others.
            await self._agreement.reach(schema, announcement.findings)
            self._raise_failure(self._volume.drop / "failed.json")
            await waiting.change()  # a trainer that was started again reads the data anew

    def _require_as_before(
        self, signature: ModelSignature, announcement: Announcement, schema: Schema | None
    ) -> None:
        """Record what the trainer announces first, and hold it to that; names can be mended until something has left.

        :raises PolicyRefused: when it is another model, or data of other names.
        """
        record, digest = self._audit.record, _digest(signature)
        named = {} if schema is None else {"schema": schema.digest()}
        renamed = record.schema not in (None, named.get("schema"))
        if digest == record.signature and renamed and record.answered:
            raise PolicyRefused(
                "signature.json: the trainer's data are not named as they were before round 1"
            )
        if record.signature is None or (digest == record.signature and renamed):
            tensors, isolation = len(signature.tensors), announcement.isolation[:200]
            self._audit.write("signature", tensors=tensors, digest=digest, isolation=isolation, **named)
        elif digest != record.signature:
            raise PolicyRefused(
                "signature.json: the trainer's model is not the one that it had before round 1"
            )

    async def _announced(self) -> Announcement:
        """What the trainer says before round 1, once it does; what is damaged is replaced when a trainer starts."""
        path, repair = self._volume.drop / "signature.json", _Repair()
        waiting = self._changes.waiting(self._volume.drop)
        while True:
            try:
                if path.exists():
                    return read_announcement(path)
            except FileDamaged as damage:
                repair.await_or_raise(damage)
            self._raise_failure(self._volume.drop / "failed.json")
            await waiting.change()

    async def _wait_for_drop(self, task: Task, contract: Contract, found: bool) -> None:
        """Return when the drop of a task is complete.

        :param found: whether it was before the trainer was given the task: a power cut may have torn it.
        """
        drop = self._volume.drop / task.task
        if found:
            await self._check_found(drop, contract)
        waiting = self._changes.waiting(self._volume.drop, drop)
        while not os.path.lexists(drop / REPLY):
            self._raise_failure(drop / "failed.json")
            self._raise_failure(self._volume.drop / "failed.json")
            await waiting.change()

    async def _check_found(self, drop: Path, contract: Contract) -> None:
        """Return when a drop that was there already holds, or is gone: a trainer that starts removes a damaged one."""
        waiting, repair = self._changes.waiting(self._volume.drop, drop), _Repair()
        while os.path.lexists(drop / REPLY):
            try:
                await asyncio.to_thread(require_undamaged, drop, contract)
                return
            except FileDamaged as damage:
                repair.await_or_raise(damage)
            except PolicyRefused:
                if os.path.lexists(drop / REPLY):
                    raise
            await waiting.change()

    @staticmethod
    def _raise_failure(path: Path) -> None:
        if os.path.lexists(path):
            raise TrainerFailed(*read_failure(path))

    def _sign(self, verified: VerifiedTask, contract: Contract, rows: Rows) -> None:
        # The policy may have changed, and time has passed, since the trainer was given the task.
        self._require_permitted(verified, contract)
        # It may leave only once the log has it.
        path = self._outbox.path(verified.task.task)
        if contract.summed is None:
            self._add(verified, self._sign_reply(verified, contract, path))
            return
        task, plain = verified.task, path.with_suffix(".plain")
        try:
            update = self._sign_reply(verified, contract.summed, plain)
            layout, sent = self._check.layout(task.step, contract.summed), self._inbox.path(task, MODEL)
            vector = self._sums.mask(task, rows, layout, plain, sent)
        finally:
            unlink(plain, missing_ok=True)
        masked = sign_vector(vector, path, verified, contract, self._key)
        self._add(verified, replace(masked, mechanisms=update.mechanisms, records=update.records))

    def _sign_reply(self, verified: VerifiedTask, contract: Contract, path: Path) -> SignedUpdate:
        task, volume = verified.task, self._volume
        privacy = self._check.update_privacy
        noise = None if privacy is None else UpdateNoise(privacy, self._secret, task.phase, task.round)
        compares = trainer_adds_noise(self._check.agent.spec.job.spec)
        rules = ReleaseRules(self._check.limits, partial(self._plan, task), noise, compares)
        reply = DroppedReply(volume.drop / task.task, task, contract, volume.blobs, volume.outbox)
        return sign_reply(reply, path, verified, rules, self._key)

    def _plan(self, task: Task, samples: int) -> tuple[Mechanism, ...]:
        """What the reply of a task must have gone through, in a silo that counts as many samples as before."""
        planned = self._check.planned_mechanisms(task.step, samples)
        if planned:
            require_same_records(task, samples, self._audit.record.records)
        return planned

    def _sign_message(self, verified: VerifiedTask, contract: Contract, rows: Rows) -> None:
        content = np.frombuffer(self._sums.message(verified.task, rows), np.uint8)
        path = self._outbox.path(verified.task.task)
        self._add(verified, sign_vector(content, path, verified, contract, self._key))

    def _add(self, verified: VerifiedTask, signed: SignedUpdate) -> None:
        """Charge the ledger with an update, and put on record that it departs."""
        task, path, leaving = verified.task, self._outbox.path(verified.task.task), signed.leaving
        charged: LedgerHead | None = None
        try:
            require_same_answer(task, signed.update, self._audit.record.answered)
            if not is_step(task):  # nothing of the silo's data is in the messages of a sum
                known = self._audit.record.ledger
                charged = self._charging.charge(signed.update, signed.mechanisms, known)
        except (FedsiloError, OSError):
            unlink(path)
            raise
        initial, model = initial_weights_of(task), self._check.model_of_sum(task)
        self._outbox.add(
            task.task,
            signed.update,
            taskDigest=verified.digest.hex(),
            round=task.round,
            phase=task.phase,
            step=task.step,
            bytes=path.stat().st_size,
            samples=leaving.samples,
            metrics=leaving.metrics,
            kinds=leaving.kinds,
            **({} if initial is None else {"initialWeights": initial}),
            **({} if model is None else {"model": model}),
            **({} if signed.records is None else {"records": signed.records}),
            **({} if charged is None else {"ledger": charged.to_dict()}),
        )

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
            self._inbox.write({**last, "acknowledged": acknowledged})
            if not self._audit.record.finished:
                self._audit.write("finished", succeeded=bool(last["settings"].get("succeeded")))

        await done_when_there_is_space(record)


class _Repair:
    """The time that the trainer gets to replace a damaged file."""

    def __init__(self) -> None:
        self._until: float | None = None

    def await_or_raise(self, damage: FileDamaged) -> None:
        """Log the damage the first time.

        :raises FileDamaged: the damage itself, when the time is over.
        """
        now = time.monotonic()
        if self._until is None:
            log.warning("%s; waiting for the trainer to replace it", damage)
            self._until = now + REPAIR_SECONDS
        elif now >= self._until:
            raise damage


def _digest(signature: ModelSignature) -> str:
    return hashlib.sha256(json.dumps(signature.to_dict(), sort_keys=True).encode()).hexdigest()


async def _cancel(work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.wait({work})
