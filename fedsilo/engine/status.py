"""A job's status, computed from the history and the open round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import Field

from fedsilo.api.common import Condition, Integer
from fedsilo.api.conditions import ConditionType, JobPhase, SiloState
from fedsilo.api.figures import finite_figures, first_score
from fedsilo.api.lost_silos import ended_without
from fedsilo.api.scores import ScoresStatus
from fedsilo.api.status import (
    BestStatus,
    ClassStatus,
    CurvePoint,
    DataFinding,
    FederatedJobStatus,
    ModelStatus,
    OutputStatus,
    SiloStatusEntry,
    condition_of,
)
from fedsilo.api.text import count_text
from fedsilo.api.timestamps import timestamp
from fedsilo.engine.record import class_figures, counted_silos, curve, lost_silos, receipts
from fedsilo.engine.result import Result
from fedsilo.engine.running_job import CurrentExchange, RunningJob
from fedsilo.methods.interface import EVALUATE, PREPROCESSING
from fedsilo.readiness.finding import ReadinessFinding
from fedsilo.transforms.best_model.selection import best_round

OUTCOMES = {"accepted": "bytes", "failed": "failed", "missing": "missing"}
"""Outcome of a silo in a round -> the field of the round's record that names the silos with it."""

SUCCEEDED_REASON = "Succeeded"
"""Reason of a job that has its model."""

MAX_FINDINGS = 100
"""Findings that the status has, the gravest ones."""

MAX_FINDING_TEXT = 1000
"""Characters of what a finding says, and of its remedy."""

MAX_REMARKS = 3
"""Remarks about the result that the status has."""

DRIFT = timedelta(seconds=10)
"""How far a round's deadline may drift before the status changes: it moves while no silo can be served."""


class EngineStatus(FederatedJobStatus):
    """A job's status as the aggregator itself keeps it: unrounded figures, and fields that only its directory has."""

    fetched: dict[str, Integer] = Field(
        default_factory=dict, description="Bytes of blobs that each silo has fetched from this process."
    )


@dataclass
class ExchangeTime:
    """When an exchange began, and when it ends if the aggregator keeps serving."""

    exchange: CurrentExchange
    start: datetime
    deadline: datetime


@dataclass
class Account:
    """What one silo has contributed so far.

    :param sent: bytes of its accepted updates.
    :param update: digest of the last of them, scores apart.
    :param rounds: completed rounds by what became of the silo in them: `accepted`, `failed`, `missing`.
    :param kept: how much of its last model counted, where the job has a rule that may leave some of it out.
    :param personal_accuracy: of its own model, where every silo with one lets it be published.
    """

    last_round: int = 0
    samples: int | None = None
    sent: int = 0
    update: str | None = None
    rounds: Counter[str] = field(default_factory=Counter)
    kept: float | None = None
    personal_accuracy: float | None = None


class StatusSource:
    """State of the job, its rounds and its silos.

    The history only grows, so that each of its lines is added up once.

    :param served: bytes of blobs that each silo has fetched from this process.
    :param refused: refusals by problem code, as the service counts them.
    :param now: the time of day.
    :param outputs: what became of the outputs that the job asks for.
    :param hindrances: by silo what keeps its guard from going on, as it says itself.
    """

    def __init__(
        self,
        job: RunningJob,
        refused: Mapping[str, int],
        served: Mapping[str, int],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        outputs: Callable[[], Sequence[OutputStatus]] = tuple,
        hindrances: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._outputs = outputs
        self._job = job
        self._hindrances = hindrances
        self._refused = refused
        self._served = served
        self._accounts = {silo: Account() for silo in job.identity.silos}
        self._by_name = {_name(silo): account for silo, account in self._accounts.items()}
        self._now = now
        self._times: ExchangeTime | None = None
        self._since: dict[ConditionType, str] = {}
        self._seen = 0
        self._metrics: dict[str, float] = {}
        self._training: dict[str, float] = {}
        self._classes: tuple[ClassStatus, ...] = ()
        self._scores: ScoresStatus | None = None
        self._lost: dict[str, str] = {}
        self._curve: tuple[CurvePoint, ...] = ()

    def status(self, message: str) -> EngineStatus:
        """Present state of the job, its rounds and its silos.

        :param message: a note for people, beside it.
        """
        self._add_up()
        job, condition = self._job, self._condition(message)
        current = None if job.failure else job.current_exchange
        hindrances = self._hindrances() if current else {}
        start, deadline = self._round_times(current) if current else (None, None)
        # A status is not validated: what a third party's method reports must not end the job.
        return EngineStatus.model_construct(
            phase=JobPhase(condition.type),
            conditions=(condition,),
            round=self._seen,
            rounds=job.rounds,
            progress=f"{self._seen}/{job.rounds}",
            silo_progress=self._silo_progress(),
            step=current.exchange.phase.name if current else None,
            round_start_time=start,
            round_deadline=deadline,
            metrics=self._metrics,
            score=self._score(),
            scores=self._scores,
            classes=_named_classes(self._classes, job.classes),
            findings=tuple(map(_finding, job.findings[:MAX_FINDINGS])),
            best=self._best_status(),
            training=self._training,
            curve=self._curve,
            outputs=tuple(self._outputs()),
            parameters=job.parameters,
            refused=dict(self._refused),
            model=_model(job.result),
            silos=tuple(self._silo(silo, hindrances.get(silo)) for silo in job.identity.silos),
            fetched={_name(silo): count for silo, count in self._served.items()},
        )

    def _condition(self, message: str) -> Condition:
        """What the job does, or how it ended; the operator's conditions say more."""
        failure = self._job.failure
        if failure:
            name, reason, message = ConditionType.FAILED, failure.reason, str(failure)
        elif self._job.result:
            name, reason = ConditionType.COMPLETE, SUCCEEDED_REASON
            told = (self._lost_silos_text(), self._early_end() or _told_remarks(self._job.result))
            message = "; ".join(filter(None, told)) or message
        else:
            name = ConditionType.RUNNING
            reason = str(name)
        since = self._since.setdefault(name, timestamp(self._now()))
        return condition_of(name, "True", reason, message, since)

    def _add_up(self) -> None:
        history = self._job.history()
        for line in map(finite_figures, history[self._seen :]):
            for outcome, part in OUTCOMES.items():
                for silo in line[part]:
                    self._accounts[silo].rounds[outcome] += 1
            for silo, count in line["bytes"].items():
                self._accounts[silo].sent += count
            self._lost = lost_silos(self._lost, line)
            for silo in counted_silos(line):
                self._accounts[silo].last_round = line["round"]
                # Under differential privacy a silo states 0, which tells nothing of its number.
                self._accounts[silo].samples = line["samples"].get(silo) or None
            for silo, part in line.get("kept", {}).items():
                self._accounts[silo].kept = part
            for name, phase, digest in receipts(line):
                if phase not in (EVALUATE, PREPROCESSING):
                    self._by_name[name].update = digest
            if "metrics" in line:
                for silo, account in self._accounts.items():
                    account.personal_accuracy = line.get("personal", {}).get(silo)
                self._classes = class_figures(line)
                self._scores = ScoresStatus.of_record(line)
            self._metrics = line.get("metrics", self._metrics)
            self._training = line["training"] or self._training
        if len(history) > self._seen:
            self._curve = curve(history)
        self._seen = len(history)

    def _score(self) -> str | None:
        """The score of the model that the job would end with now."""
        best = self._best_status()
        main = first_score(self._metrics, self._job.main_metric)
        score = main if best is None else (best.metric, best.value)
        return None if score is None else f"{score[0]}={score[1]:.4g}"

    def _best_status(self) -> BestStatus | None:
        best = best_round(self._job.evaluation, self._job.history())
        if best is None or best.round is None or best.value is None:
            return None
        return BestStatus.model_construct(round=best.round, metric=best.metric, value=best.value)

    def _lost_silos_text(self) -> str | None:
        """Which silos the job ended without, that it began with."""
        lost = [_name(silo) for silo in self._accounts if silo in self._lost]
        return ended_without(lost, len(self._accounts))

    def _early_end(self) -> str | None:
        """Why the job has its model before its last round."""
        best = best_round(self._job.evaluation, self._job.history())
        if best is None or self._seen == self._job.rounds:
            return None
        return (
            f"ended after round {self._seen} of {self._job.rounds}: {best.metric} had not improved in "
            f"{count_text(best.waited, 'evaluation')}"
        )

    def _silo_progress(self) -> str | None:
        """Silos that answered out of those that were asked, in the open exchange or else in the last round."""
        current, history = self._job.current_exchange, self._job.history()
        if current is not None:
            return f"{len(current.round.answered)}/{len(current.round.silos)}"
        if not history:
            return None
        last = history[-1]
        answered = counted_silos(last)
        return f"{len(answered)}/{len({*answered, *last['failed'], *last['missing']})}"

    def _round_times(self, current: CurrentExchange) -> tuple[str, str]:
        """RFC 3339 times of begin and end of the open exchange, which stay the same from one status to the next."""
        now, found = self._now(), current.round
        deadline = now + timedelta(seconds=found.deadline - found.elapsed)
        if self._times is None or self._times.exchange is not current:
            self._times = ExchangeTime(current, now - timedelta(seconds=found.elapsed), deadline)
        elif abs(deadline - self._times.deadline) > DRIFT:
            self._times.deadline = deadline
        return timestamp(self._times.start), timestamp(self._times.deadline)

    def accounts(self) -> Mapping[str, Account]:
        """What each silo has contributed to the completed rounds."""
        self._add_up()
        return self._accounts

    def _silo(self, silo: str, hindrance: str | None) -> SiloStatusEntry:
        account, current = self._accounts[silo], self._job.current_exchange
        return SiloStatusEntry.model_construct(
            name=_name(silo),
            namespace=silo.rpartition("/")[0],
            message=current.round.failed.get(silo) if current else self._lost.get(silo),
            state=self._silo_state(current, silo),
            hindrance=hindrance,
            last_round=account.last_round,
            samples=account.samples,
            bytes_sent=account.sent,
            update=account.update,
            kept=account.kept,
            personal_accuracy=account.personal_accuracy,
        )

    def _silo_state(self, current: CurrentExchange | None, silo: str) -> SiloState:
        if current is None:
            return SiloState.FAILED if silo in self._lost else SiloState.FINISHED
        if silo in current.round.failed:
            return SiloState.FAILED
        if silo in current.round.answered:
            return SiloState.REPORTED
        return SiloState.AWAITED if silo in current.round.silos else SiloState.IDLE


def _told_remarks(result: Result) -> str:
    """What a reader of the result must know; of many remarks the first, for `model.json` has them all."""
    told = ". ".join(result.remarks[:MAX_REMARKS])
    more = len(result.remarks) - MAX_REMARKS
    return f"{told}. {more} more remarks are in model.json" if more > 0 else told


def _named_classes(classes: tuple[ClassStatus, ...], names: Sequence[str] | None) -> tuple[ClassStatus, ...]:
    """The classes with their names, where these are known."""
    if names is None or len(names) < len(classes):
        return classes
    return tuple(found.model_copy(update={"name": name}) for found, name in zip(classes, names, strict=False))


def _finding(found: ReadinessFinding) -> DataFinding:
    return DataFinding.model_construct(
        silo=found.silo,
        severity=found.severity,
        code=found.code,
        place=found.place,
        value=found.value[:MAX_FINDING_TEXT],
        remedy=found.remedy[:MAX_FINDING_TEXT],
    )


def _name(silo: str) -> str:
    return silo.rpartition("/")[2]


def _model(result: Result | None) -> ModelStatus | None:
    return ModelStatus(path=result.path.name, sha256=result.sha256) if result else None


def failed_status(reason: str, message: str) -> EngineStatus:
    """Status of an aggregator that could not begin."""
    condition = condition_of(ConditionType.FAILED, "True", reason, message)
    return EngineStatus.model_construct(phase=JobPhase.FAILED, conditions=(condition,))
