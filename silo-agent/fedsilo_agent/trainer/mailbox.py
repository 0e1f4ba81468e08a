"""The trainer's side of the shared directory: receive tasks, deliver replies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedsilo.durable import read_json, write_durably, write_json
from fedsilo.errors import MethodError
from fedsilo.methods.interface import Exchange, Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.private_state import PrivateStates
from fedsilo.silo.reply import reply_document
from fedsilo.silo.volume import Volume
from fedsilo.wire import FINISH, ModelSignature, open_blob, write_tensors


@dataclass(frozen=True)
class ReceivedTask:
    """A task from the inbox, with its trees mapped.

    :param acknowledged: the last task whose reply the aggregator has accepted.
    """

    id: str
    task: SiloTask
    acknowledged: str | None


class Mailbox:
    """Files between trainer and guard, from the trainer's side.

    :param exchanges: the job's schedule; a task names its place in it by round and phase.
    """

    def __init__(self, volume: Volume, exchanges: Iterable[Exchange]) -> None:
        self._volume = volume
        self._private = PrivateStates(volume.state)
        self._exchanges = {(exchange.round, exchange.phase.name): exchange for exchange in exchanges}

    def clear_failures(self) -> None:
        """Remove the failures of an earlier trainer: this one tries again."""
        for path in (self._volume.drop / "failed.json", *self._volume.drop.glob("*/failed.json")):
            path.unlink(missing_ok=True)

    def announce(self, signature: ModelSignature, isolation: str) -> None:
        """Publish the model's signature, before round 1."""
        document = {"signature": signature.to_dict(), "isolation": isolation}
        write_json(self._volume.drop / "signature.json", document)

    def is_finished(self) -> bool:
        """Whether the job has ended."""
        document = read_json(self._volume.task)
        return document is not None and document["step"] == FINISH

    def pending(self) -> str | None:
        """Name of the task in the inbox, unless it was answered already."""
        document = read_json(self._volume.task)
        return None if document is None or self._is_answered(document["task"]) else str(document["task"])

    def receive(self) -> ReceivedTask:
        """Open the task in the inbox.

        :raises MethodError: when the job's schedule has no such exchange.
        :raises Problem: when one of its blobs is not a file of tensors.
        """
        document = read_json(self._volume.task)
        exchange = self._exchanges.get((document["round"], document["phase"]))
        if exchange is None:
            raise MethodError(
                f"task {document['task']}: the job has no round {document['round']} of {document['phase']}"
            )
        trees = {
            name: open_blob(self._volume.blobs / digest).tree() for name, digest in document["trees"].items()
        }
        task = SiloTask(
            step=document["step"],
            phase=document["phase"],
            round=exchange.round,
            phase_round=exchange.phase_round,
            phase_rounds=exchange.phase_rounds,
            trees=trees,
            settings=document["settings"],
        )
        return ReceivedTask(document["task"], task, document["acknowledged"])

    def acknowledged_state(self) -> State:
        """The silo's state after the reply that the inbox names as the last acknowledged one."""
        document = read_json(self._volume.task)
        return self.private_state(document["acknowledged"] if document else None)

    def private_state(self, acknowledged: str | None) -> State:
        """The silo's state after its reply to this task; see `PrivateStates.load`."""
        return self._private.load(acknowledged)

    def deliver(self, task: str, reply: Reply, before: State) -> None:
        """Store the private state, then the reply; `reply.json` is last and completes the drop.

        :param before: private state that the reply was computed with; it stays where the reply brings no new one.
        """
        self._private.store(task, before if reply.private is None else reply.private)
        directory = self._empty_drop(task)
        write_tensors(reply.tensors, directory / "tensors")
        # As it is, NaN and infinity included: what of it may leave is for the guard to say.
        write_durably(directory / "reply.json", json.dumps(reply_document(reply), sort_keys=True).encode())

    def fail(self, task: str, reason: str, message: str) -> None:
        """Report why this task has no reply."""
        write_json(self._empty_drop(task) / "failed.json", {"reason": reason, "message": message})

    def give_up(self, reason: str, message: str) -> None:
        """Report why no task will ever have a reply."""
        write_json(self._volume.drop / "failed.json", {"reason": reason, "message": message})

    def _is_answered(self, task: str) -> bool:
        directory = self._volume.drop / task
        return (directory / "reply.json").exists() or (directory / "failed.json").exists()

    def _empty_drop(self, task: str) -> Path:
        for path in self._volume.drop.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        directory = self._volume.drop / task
        directory.mkdir()
        return directory
