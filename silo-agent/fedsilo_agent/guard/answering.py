"""How a task is answered, by its kind, with the trainer's drop or without it, and what goes on record with that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from fedsilo.errors import FedsiloError
from fedsilo.files.durable import sync_directory, unlink
from fedsilo.silo.ledger_head import LedgerHead
from fedsilo.silo.release import ReleaseRules
from fedsilo.transforms.guard import MODEL, GuardSide, Messages
from fedsilo.transforms.transform import Transform
from fedsilo.wire import Contract, Task
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.budget_charger import BudgetCharger
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.exchanges import (
    initial_weights_of,
    require_new_model,
    require_same_answer,
    require_same_initial_weights,
    require_same_records,
)
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.inbox import Inbox
from fedsilo_agent.guard.messages import MessageInbox
from fedsilo_agent.guard.outbox import Outbox
from fedsilo_agent.guard.signing import SignedUpdate, sign_reply, sign_vector
from fedsilo_agent.guard.task_source import VerifiedTask


@dataclass(frozen=True)
class PreparedAnswer:
    """What may be answered to a task.

    :param dropped: what may leave of the trainer's drop, which must be complete first; None where no trainer is asked.
    :param sign: puts a signed update into the outbox, and on record.
    """

    dropped: Contract | None
    sign: Callable[[], None]


class AnswerRunner:
    """The answers of one silo's guard in one job."""

    def __init__(self, job: GuardedJob, audit: AuditLog, inbox: Inbox, outbox: Outbox) -> None:
        self._check, self._volume, self._key = job.check, job.volume, job.key
        self._audit, self._inbox, self._outbox = audit, inbox, outbox
        self._charging = BudgetCharger(job.check, job.ledgers, job.report)
        self._messages = MessageInbox(job.volume.sums, job.check, job.client)

    async def begin(self) -> None:
        """Do what has to be done when a guard starts."""
        for directory in (self._volume.guard, self._volume.sums):
            if directory.is_dir():
                sync_directory(
                    directory
                )  # an earlier guard may have died between the rename of a secret and this
        await asyncio.to_thread(self._charging.begin, self._audit.record.ledger)

    async def prepare(self, verified: VerifiedTask, contract: Contract) -> PreparedAnswer:
        """Fetch what the guard needs to answer a task, before the trainer is asked.

        :raises PolicyRefused: when it may not be answered.
        :raises Problem: when something cannot be had.
        """
        self._require_permitted(verified, contract)
        messages = await self._messages.fetch(verified.task)
        if (speaker := self._speaker(verified.task)) is not None:
            return PreparedAnswer(None, partial(self._sign_message, verified, contract, speaker, messages))
        await asyncio.to_thread(self._charging.require_whole, self._audit.record.ledger)
        return PreparedAnswer(contract.summed or contract, partial(self._sign, verified, contract, messages))

    @cached_property
    def _sides(self) -> dict[Transform, GuardSide]:
        """The job's transforms, from the method outward, with what they do here."""
        place = self._check.guard_place(self._volume, self._key)
        return {transform: transform.in_guard(place) for transform in self._check.plan.transforms}

    def _speaker(self, task: Task) -> GuardSide | None:
        """What answers a task without the trainer; None where the trainer does."""
        speaker = self._check.plan.speaker(task.step)
        return None if speaker is None else self._sides[speaker]

    def _answered_once(self, task: Task) -> str | None:
        """Digest of what a task hands out, if no other task that hands out the same may be answered."""
        return next((found for side in self._sides.values() if (found := side.answered_once(task))), None)

    def _require_permitted(self, verified: VerifiedTask, contract: Contract) -> None:
        """Check that this may leave, by the silo's policy as it is now and by what has left before."""
        task, record = verified.task, self._audit.record
        self._check.require_permitted(task, contract, record.sent_before(verified.audited_task.key))
        self._check.schedule.require_due(task, verified.digest.hex(), record.answered, record.reported)
        if self._check.plan.speaker(task.step) is not None:
            return
        require_same_initial_weights(task, record.initial_weights)
        if (model := self._answered_once(task)) is not None:
            require_new_model(task, model, record.answered)

    def _sign(self, verified: VerifiedTask, contract: Contract, messages: Messages) -> None:
        # The policy may have changed, and time has passed, since the trainer was given the task.
        self._require_permitted(verified, contract)
        # It may leave only once the log has it.
        path = self._outbox.path(verified.task.task)
        if contract.summed is None:
            self._add(verified, self._sign_reply(verified, contract, path))
            return
        task, plain = verified.task, path.with_suffix(".plain")
        try:
            update, model = self._sign_reply(verified, contract.summed, plain), self._inbox.path(task, MODEL)
            sealed = (
                side.replacement_vector(task, messages, contract.summed, plain, model)
                for side in self._sides.values()
            )
            vector = next(found for found in sealed if found is not None)
        finally:
            unlink(plain, missing_ok=True)
        signed = sign_vector(vector, path, verified, contract, self._key)
        self._add(verified, replace(signed, mechanisms=update.mechanisms, records=update.records))

    def _sign_reply(self, verified: VerifiedTask, contract: Contract, path: Path) -> SignedUpdate:
        task, volume, sides = verified.task, self._volume, tuple(self._sides.values())
        same_records = partial(require_same_records, task, first=self._audit.record.records)
        reply = DroppedReply(volume.drop / task.task, task, contract, volume.blobs, volume.outbox)
        return sign_reply(
            reply, path, verified, ReleaseRules(self._check.limits, sides, same_records), self._key
        )

    def _sign_message(
        self, verified: VerifiedTask, contract: Contract, speaker: GuardSide, messages: Messages
    ) -> None:
        content = np.frombuffer(speaker.message(verified.task, messages), np.uint8)
        path = self._outbox.path(verified.task.task)
        self._add(verified, sign_vector(content, path, verified, contract, self._key))

    def _add(self, verified: VerifiedTask, signed: SignedUpdate) -> None:
        """Charge the ledger with an update, and put on record that it departs."""
        task, path, leaving = verified.task, self._outbox.path(verified.task.task), signed.leaving
        charged: LedgerHead | None = None
        try:
            require_same_answer(task, signed.update, self._audit.record.answered)
            if (
                self._check.plan.speaker(task.step) is None
            ):  # nothing of the silo's data is in guards' messages
                known = self._audit.record.ledger
                charged = self._charging.charge(signed.update, signed.mechanisms, known)
        except (FedsiloError, OSError):
            unlink(path)
            raise
        initial, model = initial_weights_of(task), self._answered_once(task)
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
