"""Tasks as they go over the wire: bound to job, specification, contract and blobs, and signed with the job's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsilo.engine.store import JobIdentity
from fedsilo.methods.interface import Assignment, Exchange
from fedsilo.methods.schedule import task_id
from fedsilo.wire import FINISH, BlobLink, BlobRef, Contract, SigningKey, Task, seal_task


@dataclass(frozen=True)
class SealedTask:
    """A signed task and what may come back for it."""

    id: str
    sealed: bytes
    contract: Contract


@dataclass(frozen=True)
class TaskSealer:
    """Signs the tasks of one job.

    :param key: the job's task-signing key.
    """

    identity: JobIdentity
    key: SigningKey

    def seal(
        self,
        exchange: Exchange,
        silo: str,
        assignment: Assignment,
        trees: Mapping[str, BlobRef],
        contract: Contract,
    ) -> SealedTask:
        """The task of one silo in an exchange.

        :param trees: name of a tree in the server's state -> its blob.
        """
        refs = {name: trees[tree] for name, tree in assignment.trees.items()}
        task = Task(
            job=self.identity.uid,
            silo=silo,
            task=task_id(exchange, silo),
            round=exchange.round,
            phase=exchange.phase.name,
            step=exchange.phase.step,
            spec_digest=bytes.fromhex(self.identity.spec_digest),
            contract=bytes.fromhex(contract.digest()),
            blobs=tuple(BlobLink(name, ref.digest, ref.length) for name, ref in refs.items()),
            settings=dict(assignment.settings),
        )
        return SealedTask(task.task, seal_task(task, self.key), contract)

    def seal_finish(self, silo: str, round: int, succeeded: bool) -> SealedTask:
        """The task that tells a silo that the job has ended after this round."""
        nothing = Contract((), ())
        task = Task(
            job=self.identity.uid,
            silo=silo,
            task=FINISH,
            round=round,
            phase=FINISH,
            step=FINISH,
            spec_digest=bytes.fromhex(self.identity.spec_digest),
            contract=bytes.fromhex(nothing.digest()),
            blobs=(),
            settings={"succeeded": succeeded},
        )
        return SealedTask(FINISH, seal_task(task, self.key), nothing)
