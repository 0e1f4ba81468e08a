"""The guard's work: fetch a task, let the trainer answer it, check and sign the answer, send it until it is durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedsilo.durable import read_json, write_json
from fedsilo.errors import FedsiloError, PolicyRefused, Problem
from fedsilo.logs import concerning
from fedsilo.silo.volume import Volume, pauses
from fedsilo.wire import FINISH, Contract, ModelSignature, SigningKey, Task, task_digest
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.inspection import read_failure, read_signature, sign_reply
from fedsilo_agent.guard.task_check import TaskCheck

log = logging.getLogger("fedsilo.guard")

T = TypeVar("T")

LONG_POLL_SECONDS = 25.0
"""Longest time that the aggregator may hold a request for the next task."""

MAX_VOLUME_SHARE = 0.9
"""Part of the volume's free space that a task's blobs may take: the aggregator must not fill the silo's disk."""

OUTBOX_SECONDS = 3.0
"""Time to settle an update that was on its way when the job ended; the aggregator may be gone already."""

UNTRUSTED_TASK_SECONDS = 0.5
"""Pause before asking again after a task that was not the aggregator's."""


class TrainerFailed(FedsiloError):
    """The trainer reported that it cannot answer."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class VerifiedTask:
    """A task of the job's aggregator and the digest of its sealed bytes."""

    task: Task
    digest: bytes


class Guard:
    """One silo's guard for one job, over the shared volume."""

    def __init__(self, check: TaskCheck, volume: Volume, key: SigningKey, client: AggregatorClient) -> None:
        self._check = check
        self._volume = volume
        self._key = key
        self._client = client
        self._audit = AuditLog(volume.audit)
        self._fetched: set[str] = set()
        self._acknowledged: str | None = read_json(volume.guard / "acknowledged.json")

    async def run(self) -> None:
        """Answer tasks until the job ends."""
        for path in self._volume.outbox.iterdir():
            if path.suffix != ".update":  # what a crash left of one
                path.unlink()
        await self._settle_outbox()
        next_task = asyncio.ensure_future(self._next_task(after=""))
        work: asyncio.Task[None] | None = None
        try:
            while True:
                verified = await next_task
                if work is not None:
                    await _cancel(work)
                finished, before = verified.task.step == FINISH, self._acknowledged
                # The next task may overtake the response to an upload, which must not count as lost then.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(OUTBOX_SECONDS if finished else None):
                        await self._settle_outbox()
                if finished:
                    self._finish(verified.task)
                    return
                # An answer that was under way when its task was given again, as after a restart, has arrived by now.
                arrived = self._acknowledged == verified.task.task != before
                work = None if arrived else asyncio.create_task(self._answer(verified))
                next_task = asyncio.ensure_future(self._next_task(after=verified.task.task))
                # A newer task ends the wait for an older one: the round was closed without this silo.
                running = [task for task in (work, next_task) if task is not None]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if work is not None and work.done():
                    await work
        finally:
            next_task.cancel()
            if work is not None:
                work.cancel()

    async def _next_task(self, after: str) -> VerifiedTask:
        refused = ""
        while True:
            sealed = await self._client.task(after, LONG_POLL_SECONDS)
            if sealed is None:
                continue
            try:
                return VerifiedTask(self._check.open(sealed), task_digest(sealed))
            except Problem as problem:
                # Logged once, however often it is offered, so that nobody can fill the silo's disk with refusals.
                if str(problem) != refused:
                    log.error("refused a task: %s", problem)
                    self._audit.write("task-refused", code=problem.code, detail=problem.detail)
                refused = str(problem)
                await asyncio.sleep(UNTRUSTED_TASK_SECONDS)

    async def _answer(self, verified: VerifiedTask) -> None:
        with concerning(round=verified.task.round):
            await self._work(verified)

    async def _work(self, verified: VerifiedTask) -> None:
        task = verified.task
        update = self._volume.outbox / f"{task.task}.update"
        try:
            if not update.exists():
                # A task that is refused never reaches the trainer.
                contract = await self._contract(task)
                await self._put_into_inbox(task)
                drop = await self._wait_for_drop(task)
                await _uninterrupted(asyncio.to_thread(self._sign, verified, contract, drop, update))
            await self._send(update)
        except PolicyRefused as refusal:
            log.error("refused: %s", refusal)
            self._audit.write("refused", task=task.task, round=task.round, detail=str(refusal))
            await self._report(task, refusal.reason, str(refusal))
        except TrainerFailed as failure:
            self._audit.write(
                "failed", task=task.task, round=task.round, reason=failure.reason, detail=str(failure)
            )
            await self._report(task, failure.reason, str(failure))
        except Problem as problem:
            log.warning("task %s: %s", task.task, problem)
            self._audit.write("not-accepted", task=task.task, round=task.round, code=problem.code)
            update.unlink(missing_ok=True)
        except FedsiloError as error:
            log.error("task %s: %s", task.task, error)
            self._audit.write(
                "failed", task=task.task, round=task.round, reason=error.reason, detail=str(error)
            )
            await self._report(task, error.reason, str(error))

    async def _put_into_inbox(self, task: Task) -> None:
        digests = {link.digest for link in task.blobs}
        # The task before counts too: an evaluation between two rounds must not make both fetch the same encoders.
        for path in self._volume.blobs.iterdir():
            if path.name.removeprefix(".").removesuffix(".part") not in digests | self._fetched:
                path.unlink()
        self._fetched = digests
        missing = [link for link in task.blobs if not (self._volume.blobs / link.digest).exists()]
        needed, free = sum(link.length for link in missing), shutil.disk_usage(self._volume.blobs).free
        if needed > free * MAX_VOLUME_SHARE:
            raise PolicyRefused(
                f"task {task.task}: its blobs have {needed} bytes, the silo's volume has {free} free"
            )
        for link in missing:
            await self._client.download(link, self._volume.blobs / link.digest)
        self._write_task(task)

    def _write_task(self, task: Task) -> None:
        document = {
            "task": task.task,
            "step": task.step,
            "phase": task.phase,
            "round": task.round,
            "trees": {link.name: link.digest for link in task.blobs},
            "settings": dict(task.settings),
            "acknowledged": self._acknowledged_before(task),
        }
        write_json(self._volume.task, document)

    def _acknowledged_before(self, task: Task) -> str | None:
        """The last acknowledged task other than this one.

        An aggregator that has lost the answer to a task gives it again: if it must be computed again, then from the
        same private state.
        """
        if self._acknowledged != task.task:
            return self._acknowledged
        given = read_json(self._volume.task)
        return given["acknowledged"] if given and given["task"] == task.task else self._acknowledged

    async def _contract(self, task: Task) -> Contract:
        path = self._volume.drop / "signature.json"
        pause = pauses()
        while not path.exists():
            self._raise_failure(self._volume.drop / "failed.json")
            await asyncio.sleep(next(pause))
        document, isolation = read_signature(path)
        try:
            signature = ModelSignature.from_dict(document)
        except Problem as problem:
            raise PolicyRefused(f"signature.json: {problem}") from problem
        known = self._volume.guard / "signature.json"
        if not known.exists():
            write_json(known, signature.to_dict())
            self._audit.write("signature", tensors=len(signature.tensors), isolation=isolation[:200])
        elif read_json(known) != signature.to_dict():
            raise PolicyRefused(
                "signature.json: the trainer's model is not the one that it had before round 1"
            )
        return self._check.contract(task, signature)

    async def _wait_for_drop(self, task: Task) -> Path:
        drop = self._volume.drop / task.task
        pause = pauses()
        while not os.path.lexists(drop / "reply.json"):
            self._raise_failure(drop / "failed.json")
            self._raise_failure(self._volume.drop / "failed.json")
            await asyncio.sleep(next(pause))
        return drop

    @staticmethod
    def _raise_failure(path: Path) -> None:
        if os.path.lexists(path):
            raise TrainerFailed(*read_failure(path))

    def _sign(self, verified: VerifiedTask, contract: Contract, drop: Path, update: Path) -> None:
        task = verified.task
        # It may leave as an update only once the log has it.
        signed = update.with_suffix(".signed")
        signed_update = sign_reply(
            drop, signed, task, verified.digest, contract, self._check.limits, self._key
        )
        self._audit.write(
            "departure",
            task=task.task,
            round=task.round,
            step=task.step,
            digest=signed_update.digest,
            bytes=signed_update.bytes,
            samples=signed_update.samples,
            metrics=dict(signed_update.metrics),
            kinds={kind: dict(count) for kind, count in signed_update.kinds.items()},
        )
        signed.replace(update)

    async def _settle_outbox(self) -> None:
        """Send what was signed and not acknowledged so far, or drop it when its round is over."""
        for update in sorted(self._volume.outbox.glob("*.update")):
            try:
                await self._send(update)
            except Problem as problem:
                self._audit.write("not-accepted", task=update.stem, code=problem.code)
                update.unlink(missing_ok=True)

    async def _send(self, update: Path) -> None:
        with update.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        await self._client.upload(update.stem, update, digest)
        self._acknowledged = update.stem
        write_json(self._volume.guard / "acknowledged.json", self._acknowledged)
        self._audit.write("acknowledged", task=update.stem, digest=digest)
        update.unlink()

    async def _report(self, task: Task, reason: str, message: str) -> None:
        try:
            await self._client.report_failure(task.task, reason, message)
        except Problem as problem:
            log.warning("the failure of task %s was not taken: %s", task.task, problem)

    def _finish(self, task: Task) -> None:
        self._write_task(task)
        self._audit.write("finished", succeeded=bool(task.settings.get("succeeded")))


async def decline(client: AggregatorClient, check: TaskCheck, why: FedsiloError) -> None:
    """Report a failure for every task, so that no round waits for this silo until its deadline."""
    after = ""
    while after != FINISH:
        sealed = await client.task(after, LONG_POLL_SECONDS)
        if sealed is None:
            continue
        try:
            after = check.open(sealed).task
            if after != FINISH:
                await client.report_failure(after, why.reason, str(why))
        except Problem as problem:
            log.warning("the failure of task %s was not taken: %s", after, problem)
            await asyncio.sleep(UNTRUSTED_TASK_SECONDS)


async def _uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await work in a thread to its end, also when cancelled: a thread cannot be stopped."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _cancel(work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.wait({work})
