"""The round engine runs a job as a state machine over a directory.

It knows no HTTP and no clock of its own. Its caller lets it `accept` checked updates, `fail` silos that cannot
answer, `wait` while serving time goes by, and `settle` when a round has come to an end. Kill it at any instant:
opened again over the same directory it gives the same silos the same tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsilo.api.data import DataSpec
from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.data.schema import Schema
from fedsilo.engine.announcements import AnnouncementStore, WaitContext
from fedsilo.engine.exchange import OpenExchange, StoredUpdate
from fedsilo.engine.final_artifacts import write_final_artifacts
from fedsilo.engine.opening import open_exchange
from fedsilo.engine.provenance import job_line, new_lines
from fedsilo.engine.record import Record, round_record, with_metrics
from fedsilo.engine.result import Result, write_checkpoint
from fedsilo.engine.round import RoundOutcome
from fedsilo.engine.sealing import SealedTask, TaskSealer
from fedsilo.engine.store import JobIdentity, JobProgress, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError, FileDamaged, Problem
from fedsilo.freed_memory import release_free_memory
from fedsilo.methods.main_metric import main_metric, whole_evaluation
from fedsilo.methods.method import written_spec
from fedsilo.methods.schedule import exchange_id, is_task_of, task_id
from fedsilo.methods.state import State
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.readiness.finding import ReadinessFinding
from fedsilo.updates.round_updates import StoredUpdates
from fedsilo.wire import AcceptedUpdate, ExpectedUpdate, SigningKey, VerifyKey

log = logging.getLogger("fedsilo.engine")


class RoundEngine:
    """One job's rounds, from the first task to the model.

    :param key: the job's task-signing key.
    :param silo_keys: silo -> the key that signs its updates.
    :ivar damaged: accepted updates that did not hold any more when the engine was opened again, and were dropped.
    :raises WorkdirConflict: when the store belongs to another job.
    :raises FileDamaged: when a file of the store is not as it was written.
    :raises MethodError: when the method's server half fails.
    """

    def __init__(
        self,
        store: JobStore,
        identity: JobIdentity,
        workflow: Workflow,
        key: SigningKey,
        silo_keys: Mapping[str, VerifyKey],
    ) -> None:
        self.identity = identity
        self.result: Result | None = None
        self.damaged = 0
        self._lost: FedsiloError | None = None
        self._current: OpenExchange | None = None
        self._swept = False
        self._store = store
        self._sealer = TaskSealer(identity, key)
        self._silo_keys = silo_keys
        self._workflow = workflow
        self.rounds = workflow.rounds
        self._exchange_ids = frozenset(map(exchange_id, workflow.exchanges))
        store.claim(identity.uid, identity.spec_digest)
        self._announcements = AnnouncementStore(store.directory, workflow.spec.data, workflow.test_schema)
        self._progress = store.load() or store.commit(
            JobProgress(0, self._stored_state(workflow.start())), None
        )
        records = [*store.history(), self._progress.record]
        self._past = {
            task: digest for record in records for task, digest in record.get("updates", {}).items()
        }
        self.sweep()  # what an earlier process has left may fill the disk that the next exchange needs
        self._enter(self._progress)
        self.sweep()

    # `settle` runs in a thread of its own and replaces the open exchange: every other method reads it once.

    @property
    def current_exchange(self) -> OpenExchange | None:
        """The exchange that is open; None once there is a model, and while the next one cannot be opened."""
        return self._current

    @property
    def failure(self) -> FedsiloError | None:
        """Why the job failed, once it has."""
        current = self._current
        return self._lost or self._announcements.failure or (current.failure if current else None)

    @property
    def parameters(self) -> int:
        """Numbers in the job's model."""
        return self._workflow.parameters

    @property
    def data(self) -> DataSpec:
        """What the job says of the silos' data."""
        return self._workflow.spec.data

    @property
    def evaluation(self) -> EvaluationSpec:
        """How the job's model is scored."""
        return whole_evaluation(self._workflow.method)

    @property
    def main_metric(self) -> str | None:
        """Name of the metric that stands for the job."""
        return main_metric(self._workflow.method)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, where they are known."""
        return self._announcements.classes

    @property
    def findings(self) -> tuple[ReadinessFinding, ...]:
        """What is known of all silos' data, where the job asks for that; the gravest first."""
        return self._announcements.findings

    @property
    def awaits_answers(self) -> bool:
        """Whether there is an open exchange that goes on."""
        current = self._current
        return current is not None and current.is_open

    @property
    def ended(self) -> bool:
        """Whether there is a model or a failure."""
        return self.result is not None or self.failure is not None

    @property
    def state(self) -> State:
        """The method's state after the last complete exchange."""
        return self._progress.state

    def history(self) -> list[dict[str, Any]]:
        """One record per completed round."""
        return self._store.history()

    def task(self, silo: str) -> SealedTask | None:
        """The silo's sealed task; None while there is none for it."""
        if self.ended:
            return self._sealer.seal_finish(silo, self.rounds, self.result is not None)
        current = self._current
        return current.task(silo) if current else None

    def blob(self, digest: str) -> Path | None:
        """File of a blob that the open exchange hands out."""
        current = self._current
        return self._store.blobs / digest if current and digest in current.blobs else None

    def accepted_digest(self, task: str) -> str | None:
        """Digest of the update that was accepted for a task of this or an earlier round."""
        current = self._current
        return self._past.get(task) or (current.accepted.get(task) if current else None)

    def require_sender(self, task: str, sender: str) -> None:
        """Return unless the task is another silo's, of whatever round.

        To be asked before anything else about a task: whether another silo has answered is not this one's business.

        :raises Problem: `wrong-sender`.
        """
        if is_task_of(task, sender, self._exchange_ids):
            return
        if any(is_task_of(task, silo, self._exchange_ids) for silo in self.identity.silos):
            raise Problem("wrong-sender", f"task {task} is another silo's, not one of {sender}")

    def expected_update(self, task: str, sender: str) -> ExpectedUpdate:
        """What an update for this task must be.

        :raises Problem: `job-finished`, `round-closed`, `unknown-task` or `wrong-sender`,
            as do `partial_path`, `accept` and `fail`.
        """
        return self._exchange_of(task).expected_update(task, sender)

    def partial_path(self, task: str) -> Path:
        """Where the bytes of an unfinished update are collected until `accept`."""
        return self._exchange_of(task).partial_path(task)

    def accept(self, silo: str, upload: Path, update: AcceptedUpdate) -> None:
        """Take an update as the silo's answer; it outlives a crash from now on.

        :param upload: file of the update, on the disk, in the directory of `partial_path`; it is moved.
        :param update: outcome of its check against what was `expected`.
        """
        exchange = self._exchange_of(update.header.task)
        exchange.expected_update(update.header.task, silo)
        exchange.accept(silo, upload, update)

    def fail(self, silo: str, task: str, reason: str, message: str) -> bool:
        """Record why a silo cannot answer a task; some reasons fail the job at once.

        :returns: whether that counts: a failure that is reported after the task's update was accepted does not.
        """
        self.require_sender(task, silo)
        if self.accepted_digest(task) is not None:
            return False
        return self._exchange_of(task).fail(silo, task, reason, message)

    def announce(self, silo: str, schema: Schema) -> None:
        """Take what a silo says of its data's names and types; it outlives a crash from now on."""
        self._announcements.announce(silo, schema)

    def report_readiness(
        self, silo: str, schema: Schema | None, findings: tuple[AnnouncedFinding, ...]
    ) -> None:
        """Take a silo's schema with what it says of its data, where the job asks for that."""
        self._announcements.report(silo, schema, findings)

    def schemata_agree(self, heard: Collection[str], waited: float) -> bool:
        """Whether a silo that has announced its schema may begin; False while others are waited for.

        :param heard: silos that are there.
        :param waited: seconds that the silo has waited so far.
        :raises Problem: `schema-mismatch` when they differ, with which the job has failed, or `job-finished`.
        """
        return self._announcements.agree(self._moment(heard, waited))

    def is_ready(self, heard: Collection[str], waited: float) -> bool:
        """Whether a silo that has said how its data are may begin; False while others are waited for. Arguments and
        errors are those of `schemata_agree`.

        :raises Problem: also `not-ready`, when the job has failed of what the silos' data are like.
        """
        return self._announcements.ready(self._moment(heard, waited))

    def _moment(self, heard: Collection[str], waited: float) -> WaitContext:
        current = self._current
        first = self._progress.position == 0
        return WaitContext(current.round if current else None, first, self.ended, heard, waited)

    def wait(self, seconds: float) -> None:
        """Serving time went by: time in which silos could answer."""
        current = self._current
        if current is not None:
            current.wait(seconds)

    def forget_failures(self) -> None:
        """Give the failed silos another try, and the open round its full time, when the job is resumed."""
        self._announcements.forget()
        current = self._current
        if current is not None:
            current.forget_failures()

    def _exchange_of(self, task: str) -> OpenExchange:
        """The open exchange, if the task is one of it.

        :raises Problem: `job-finished`, `round-closed` or `unknown-task`.
        """
        if self.ended:
            raise Problem("job-finished", f"the job has ended; task {task} is not awaited any more")
        current = self._current
        if current is not None and current.silo_of(task) is not None:
            return current
        past = self._workflow.exchanges[: self._progress.position]
        known = any(task == task_id(exchange, silo) for exchange in past for silo in self.identity.silos)
        name = exchange_id(current.exchange) if current else "that follows"
        raise Problem("round-closed" if known else "unknown-task", f"task {task} is not of the round {name}")

    def settle(self) -> bool:
        """Fold a closed round into the next state and open the next exchange; whether anything happened.

        Where an accepted update is not there any more as it was accepted, the same exchange is opened again, as after a
        restart.

        :raises OSError: when the disk is full; nothing is half-written and calling again is safe.
        """
        if self.ended:
            return False
        try:
            return self._settle()
        except FedsiloError as error:
            self._lost = error
            return True

    def _settle(self) -> bool:
        current = self._current
        if current is None:
            # An earlier call stored the round's outcome, and then the disk was too full to open what follows.
            self.sweep()
            self._enter(self._progress)
            return True
        if current.is_open:
            return False
        if not self._swept:
            self.sweep()
        if current.round.outcome is not RoundOutcome.CLOSED:
            raise current.round.loss()
        try:
            stored = current.stored_updates(self.identity.silos)
        except FileDamaged as damage:
            log.warning("%s; all updates of the round are checked again", damage)
            self._enter(self._progress)
            return True
        state, record = self._fold(current, stored)
        complete = self._workflow.is_last_of_round(self._progress.position)
        if complete:
            history = [*self._store.history(), record]
            state = self._stored_state(self._workflow.model.complete_round(state, history))
        position = self._workflow.position_after(self._progress.position, state)
        progress = JobProgress(position, state, {} if complete else record)
        lines = self._provenance(current, stored, state)
        self._progress = self._store.commit(progress, record if complete else None, lines)
        self._past |= current.accepted
        self._current, self._swept = None, False
        self._enter(self._progress)
        return True

    def sweep(self) -> None:
        """Drop what the exchanges before have left: to be called once the tasks of the next one are out.

        Removing the updates of large models takes time. What is not dropped, because this process ends before or the
        call fails, is dropped before the next exchange is settled, and when the directory is opened again.
        """
        current, position = self._current, self._progress.position
        keep = {ref.digest for ref in self._progress.state.refs().values()}
        if current is not None:
            keep |= current.blobs
        following = self._workflow.exchanges[position : position + 1] if self.result is None else ()
        self._store.sweep(keep, exchange_id(following[0]) if following else None)
        self._swept = True

    def _fold(
        self, current: OpenExchange, stored: Mapping[str, StoredUpdate]
    ) -> tuple[State, dict[str, Any]]:
        release_free_memory()
        before, exchange = self._progress.state, current.exchange
        sizes = {silo: update.size for silo, update in stored.items()}
        record = round_record(self._progress.record, exchange, current.round, current.accepted, sizes)
        updates = StoredUpdates({silo: update.path for silo, update in stored.items()})
        state, found = self._workflow.fold(before, exchange, updates, current.broadcast)
        state = self._stored_state(state)
        release_free_memory()
        return state, with_metrics(record, found, self._workflow.score(state, exchange))

    def _stored_state(self, state: State) -> State:
        return self._workflow.stored_state(state, self._store.blobs)

    def _provenance(
        self, current: OpenExchange, stored: Mapping[str, StoredUpdate], state: State
    ) -> list[str]:
        """The exchange's lines of the provenance."""
        begun, key = self._progress.state, self._sealer.key.verify_key
        written = written_spec(self._workflow.method)
        return new_lines(
            self._store.provenance.last,
            lambda: job_line(self.identity, written, key, self._silo_keys, begun),
            exchange_id(current.exchange),
            {silo: task.sealed for silo, task in current.tasks.items()},
            {silo: update.signed for silo, update in stored.items()},
            state,
        )

    def _enter(self, progress: JobProgress) -> None:
        """Open the next exchange, or write the model after the last."""
        history = self._store.history()
        self._write_checkpoint(progress, history)
        if self._workflow.is_over(progress.position, history):
            schemata = self._announcements.schemata
            self.result = write_final_artifacts(self._store, self._workflow, self._sealer, progress, schemata)
            self._current = None
            return
        exchange = self._workflow.exchanges[progress.position]
        opened = open_exchange(self._store, self._workflow, self._sealer, exchange, progress.state)
        opened.recover(self._silo_keys)
        self.damaged += len(opened.damaged)
        self._current = opened

    def _write_checkpoint(self, progress: JobProgress, history: Sequence[Record]) -> None:
        """Keep the model of a round that is complete, where one is due; after a crash again."""
        due = None if progress.record else self._workflow.checkpoint(progress.state, history)
        if due is not None:
            write_checkpoint(self._store.directory, due, self._workflow.spec, self.identity)
