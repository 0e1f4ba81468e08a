"""The trainer's side of the shared directory: receive tasks, deliver replies."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.data.schema import Schema
from fedsilo.errors import MethodError
from fedsilo.files.durable import make_directory, remove, unlink
from fedsilo.files.full_disk import when_there_is_space
from fedsilo.files.json_files import write_json, write_with_digest
from fedsilo.methods.interface import Exchange, Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.silo.drop import REPLY, damaged_file, write_drop
from fedsilo.silo.private_state import PrivateStateStore
from fedsilo.silo.reply import reply_document
from fedsilo.silo.volume import Volume
from fedsilo.wire import FINISH, ModelSignature, open_blob
from fedsilo_agent.trainer.inbox import TrainerInbox

log = logging.getLogger("fedsilo.trainer")


@dataclass(frozen=True)
class ReceivedTask:
    """A task from the inbox, with its trees mapped.

    :param acknowledged: the last task whose reply the aggregator has accepted.
    """

    id: str
    task: SiloTask
    acknowledged: str | None


class Mailbox:
    """Files between trainer and guard, from the trainer's side. Whatever it writes waits while the volume is full.

    :param exchanges: the job's schedule; a task names its place in it by round and phase.
    """

    def __init__(self, volume: Volume, exchanges: Iterable[Exchange]) -> None:
        self._volume = volume
        self._inbox = TrainerInbox(volume)
        self._private = PrivateStateStore(volume.state)
        self._exchanges = {(exchange.round, exchange.phase.name): exchange for exchange in exchanges}

    @property
    def incoming(self) -> tuple[Path, ...]:
        """The directories in which the guard writes what this side waits for."""
        return self._volume.inbox, self._volume.blobs

    def clear(self) -> None:
        """Remove of an earlier trainer its failures, and an answer that does not hold: this one tries again.

        It comes before all that takes time: the guard waits for a while only.
        """
        for path in (self._volume.drop / "failed.json", *self._volume.drop.glob("*/failed.json")):
            unlink(path, missing_ok=True)
        for reply in self._volume.drop.glob(f"*/{REPLY}"):
            _remove_damaged(reply.parent)

    def announce(
        self,
        signature: ModelSignature | None,
        isolation: str,
        schema: Schema | None = None,
        findings: Iterable[AnnouncedFinding] | None = None,
    ) -> None:
        """Publish the model's signature and the schema of the data, before round 1.

        :param signature: None where the data are not the job's, and nothing will be trained.
        :param findings: what a check of the data says; None where the job does not ask for one.
        """
        document: dict[str, Any] = {"isolation": isolation}
        document |= {} if signature is None else {"signature": signature.to_dict()}
        document |= {} if schema is None else {"schema": schema.to_dict()}
        document |= {} if findings is None else {"findings": [finding.to_dict() for finding in findings]}
        when_there_is_space(lambda: write_with_digest(self._volume.drop / "signature.json", document))

    def is_finished(self) -> bool:
        """Whether the job has ended."""
        document = self._inbox.task()
        return document is not None and document["step"] == FINISH

    def pending_task(self) -> str | None:
        """Name of the task in the inbox, unless it was answered already."""
        document = self._inbox.task()
        if document is None or document["step"] == FINISH or self._is_answered(document["task"]):
            return None
        return str(document["task"]) if self._inbox.is_whole(document["trees"].values()) else None

    def receive(self, task: str) -> ReceivedTask | None:
        """Open the task in the inbox; None when the guard has put another one there meanwhile.

        :raises MethodError: when the job's schedule has no such exchange.
        :raises FileDamaged: when one of its blobs does not hold.
        :raises Problem: when one of them is no file of tensors.
        """
        document = self._inbox.task()
        if document is None or document["task"] != task:
            return None
        self._inbox.require_whole(document["trees"].values())
        exchange = self._exchanges.get((document["round"], document["phase"]))
        if exchange is None:
            raise MethodError(
                f"task {document['task']}: the job has no round {document['round']} of {document['phase']}"
            )
        trees = {
            name: open_blob(self._volume.blobs / digest).tree() for name, digest in document["trees"].items()
        }
        opened = SiloTask(
            step=document["step"],
            phase=document["phase"],
            round=exchange.round,
            phase_round=exchange.phase_round,
            phase_rounds=exchange.phase_rounds,
            trees=trees,
            settings=document["settings"],
        )
        return ReceivedTask(task, opened, document["acknowledged"])

    def acknowledged_state(self) -> State:
        """The silo's state after the reply that the inbox names as the last acknowledged one."""
        document = self._inbox.task()
        # Without a task nothing is known of what was acknowledged: no state may be dropped for that.
        return State() if document is None else self.private_state(document["acknowledged"])

    def private_state(self, acknowledged: str | None) -> State:
        """The silo's state after its reply to this task; see `PrivateStateStore.load`."""
        return self._private.load(acknowledged)

    def deliver(self, task: str, reply: Reply, before: State) -> None:
        """Store the private state, then the reply; `reply.json` is last and completes the drop.

        :param before: private state that the reply was computed with; it stays where the reply brings no new one.
        """
        # As it is, NaN and infinity included: what of it may leave is for the guard to say.
        document = reply_document(reply)

        def write() -> None:
            # Computed again, it may be another one, to which another state belongs.
            durable = self._private.store(task, before if reply.private is None else reply.private)
            write_drop(self._empty_drop(task), reply.tensors, document, durable)

        when_there_is_space(write)

    def fail(self, task: str, reason: str, message: str) -> None:
        """Report why this task has no reply."""
        document = {"reason": reason, "message": message}
        when_there_is_space(lambda: write_json(self._empty_drop(task) / "failed.json", document))

    def give_up(self, reason: str, message: str) -> None:
        """Report why no task will ever have a reply."""
        document = {"reason": reason, "message": message}
        when_there_is_space(lambda: write_json(self._volume.drop / "failed.json", document))

    def _is_answered(self, task: str) -> bool:
        directory = self._volume.drop / task
        return (directory / REPLY).exists() or (directory / "failed.json").exists()

    def _empty_drop(self, task: str) -> Path:
        for path in self._volume.drop.iterdir():
            if path.is_dir() or path.name == task:
                remove(path)
        directory = self._volume.drop / task
        make_directory(directory)
        return directory


def _remove_damaged(drop: Path) -> None:
    """Remove a drop of an earlier trainer unless it holds: its task is done again."""
    damaged = damaged_file(drop, lambda path: path.open("rb"), sys.maxsize)
    if damaged is not None:
        log.warning("%s: damaged; its task is done again", damaged)
        if not drop.is_symlink():
            remove(drop / REPLY)  # first, for it says to the guard that the drop is complete
        remove(drop)
