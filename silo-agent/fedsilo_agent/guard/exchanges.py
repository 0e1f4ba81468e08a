"""Which exchanges of its job a silo answers: each once, and none that lies before one that it has answered.

A failure is an answer too: after it only the same task, byte for byte, may be given again, as in a job that is resumed.
Which exchanges there are follows from the job that the silo admitted. Which were answered is read from the audit log.
Together they bound what an aggregator can get, whatever it asks for and however often it or the guard is restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedsilo.errors import PolicyRefused, quoted_value
from fedsilo.files.digests import short_digest
from fedsilo.methods.interface import INITIAL_WEIGHTS, Exchange
from fedsilo.wire import Task


class ExchangeRefused(PolicyRefused):
    """An exchange that is not the job's, is over for this silo, or was answered already."""

    reason = "ExchangeRefused"


@dataclass(frozen=True)
class Answer:
    """What left in an exchange.

    :param task: its name.
    :param task_digest: of the sealed task; None in lines of the audit log that do not say so.
    :param update: digest of the signed update.
    :param size: bytes of its tensors.
    :param step: that the task asked for.
    :param model: digest of the model that it handed out, in a job with secure aggregation.
    """

    task: str
    task_digest: str | None
    update: str
    size: int = 0
    step: str = ""
    model: str | None = None


ExchangeKey = tuple[int, str]
"""An exchange's round and phase, which tell it from the job's others."""


@dataclass(frozen=True)
class AuditedTask:
    """A task as the audit log names it.

    :param digest: of the sealed task; None where a line of the audit log does not say so.
    """

    task: str
    round: int
    phase: str
    digest: str | None

    @property
    def key(self) -> ExchangeKey:
        """The exchange that it is of."""
        return self.round, self.phase


@dataclass(frozen=True)
class FailureLog:
    """What was reported of failures in an exchange.

    :param count: of reports.
    :param size: bytes of those texts in which the trainer may have a part.
    :param task: that a failure has answered first; None while there is none.
    :param task_digest: of the sealed task.
    """

    count: int = 0
    size: int = 0
    task: str | None = None
    task_digest: str | None = None

    def and_one(self, size: int, task: str, task_digest: str | None) -> FailureLog:
        """After one more report.

        :param task_digest: None where it answers no task.
        """
        first = self.task is None and task_digest is not None
        answered = (task, task_digest) if first else (self.task, self.task_digest)
        return FailureLog(self.count + 1, self.size + size, *answered)


NO_REPORTS: Mapping[ExchangeKey, FailureLog] = {}


class Schedule:
    """The exchanges of a job in their order.

    :param exchanges: as the method has them for the job.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._exchanges = {(exchange.round, exchange.phase.name): exchange for exchange in exchanges}
        self._positions = {key: position for position, key in enumerate(self._exchanges)}
        self._rounds = max((round for round, _ in self._exchanges), default=0)

    def has(self, key: ExchangeKey) -> bool:
        """Whether the job has an exchange of this round and phase."""
        return key in self._exchanges

    def exchange_of(self, task: Task) -> Exchange:
        """The exchange that a task is of, once it is known to be one of the job."""
        return self._exchanges[task.round, task.phase]

    def require_due(
        self,
        task: Task,
        digest: str,
        answered: Mapping[ExchangeKey, Answer],
        reported: Mapping[ExchangeKey, FailureLog] = NO_REPORTS,
    ) -> None:
        """Check that a task is of an exchange that may be answered now.

        The task that was answered last may be given again, byte for byte: an aggregator that restarts may have lost
        the answer.

        :param digest: of the sealed task.
        :param answered: the exchanges that were answered with an update so far.
        :param reported: those of which failures were reported.
        :raises ExchangeRefused: naming the exchange and why nothing is sent for it.
        """
        key = task.round, task.phase
        asked = f"task {task.task} is of round {task.round}, phase {task.phase!r}, step {task.step!r}"
        position = self._positions.get(key)
        if position is None or self._exchanges[key].phase.step != task.step:
            problem = f"which is no exchange of this job of {self._rounds} rounds"
            raise ExchangeRefused(f"{asked}, {problem}; nothing is sent")
        before = answered.get(key)
        if before is not None and (before.task != task.task or before.task_digest not in (None, digest)):
            problem = f"which this silo has answered: task {before.task}, update {before.update[:12]}"
            raise ExchangeRefused(f"{asked}, {problem}; each exchange is answered once")
        failed = {other: reports for other, reports in reported.items() if reports.task is not None}
        failure = failed.get(key)
        if failure is not None and (failure.task, failure.task_digest) != (task.task, digest):
            problem = f"which this silo has answered: task {failure.task}, with a failure"
            raise ExchangeRefused(f"{asked}, {problem}; each exchange is answered once")
        round, phase = max(
            (other for other in (*answered, *failed) if other in self._positions),
            key=self._positions.__getitem__,
            default=key,
        )
        if self._positions[round, phase] > position:
            problem = f"which is over: this silo has answered round {round}, phase {phase!r} since"
            remedy = "an aggregator that was set back to an earlier state cannot go on; begin the job anew"
            raise ExchangeRefused(f"{asked}, {problem}; {remedy}")


def require_same_answer(task: Task, update: str, answered: Mapping[ExchangeKey, Answer]) -> None:
    """Check that what would leave is what has left before, if anything has in this exchange.

    :param update: digest of the signed update.
    :raises ExchangeRefused: when the trainer's reply is another one by now.
    """
    before = answered.get((task.round, task.phase))
    if before is not None and before.update != update:
        raise ExchangeRefused(
            f"task {task.task} was answered with update {before.update[:12]}, and the trainer's reply gives "
            f"{quoted_value(update[:12])} now; each exchange is answered once"
        )


def require_new_model(task: Task, model: str | None, answered: Mapping[ExchangeKey, Answer]) -> None:
    """Check that a task does not hand out again what this silo has answered in an earlier exchange of its kind.

    Two sums of answers to one model, over all silos and over all but one, differ by the answer of that one.

    :param model: digest of the model that the task hands out, None for none.
    :raises ExchangeRefused: naming the exchange that handed it out before.
    """
    for (round, phase), before in answered.items():
        if (round, phase) != (task.round, task.phase) and before.step == task.step and before.model == model:
            raise ExchangeRefused(
                f"task {task.task} hands out {short_digest(str(model))} again, which this silo has answered in round "
                f"{round}, "
                f"phase {phase!r}: the difference of two sums over other silos shows what one has sent; nothing is sent"
            )


def require_same_records(task: Task, records: int, first: int | None) -> None:
    """Check that a silo counts as many examples, or persons, as in its first update, from which its noise follows.

    Only then all its mechanisms come to the job's epsilon together.

    :param records: that the trainer counts now.
    :param first: that it counted in the first departure; None before that.
    :raises PolicyRefused: when they are others.
    """
    if first is not None and records != first:
        raise PolicyRefused(
            f"task {task.task}: the trainer's reply is of {records} examples, and this silo's first update of {first}, "
            "from which the noise of the whole job follows; leave the data as they are while a job runs"
        )


def initial_weights_of(task: Task) -> str | None:
    """Digest of the initial weights that a task hands out, the frozen ones among them; None where it has none."""
    return next((link.digest for link in task.blobs if link.name == INITIAL_WEIGHTS), None)


def require_same_initial_weights(task: Task, first: str | None) -> None:
    """Check that a task hands out the initial weights from which the first departure came.

    Where the job's specification names no file, nothing but what was handed out before tells which they are.

    :param first: their digest; None before the first departure, and in a job whose tasks have none.
    :raises PolicyRefused: when they are others by now, or are not handed out any more.
    """
    given = initial_weights_of(task)
    if first is not None and given != first:
        found = "no initial weights" if given is None else f"initial weights {short_digest(given)}"
        raise PolicyRefused(
            f"task {task.task} hands out {found}, those of this silo's first update are {short_digest(first)}; nothing "
            "is sent"
        )
