"""What a job says of itself: one document, published whenever it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from fedsilo.api.timestamps import timestamp
from fedsilo.durable import write_json
from fedsilo.engine.record import curve, receipts
from fedsilo.engine.result import Result
from fedsilo.engine.round import OpenRound
from fedsilo.engine.store import JobIdentity
from fedsilo.errors import FedsiloError
from fedsilo.methods.interface import EVALUATE, Exchange

OUTCOMES = {"accepted": "bytes", "failed": "failed", "missing": "missing"}
"""What may become of a silo in a round, and where the round's record names those silos."""

DRIFT = timedelta(seconds=10)
"""By so much a round's deadline may be off before it is told anew: it moves while no silo can be served."""


class OpenExchange(Protocol):
    """The exchange that waits for answers."""

    @property
    def exchange(self) -> Exchange:
        """Its place in the job."""

    @property
    def round(self) -> OpenRound:
        """Who was asked and who answered."""


class RunningJob(Protocol):
    """A job as its status sees it: that of an aggregator, or one in memory."""

    @property
    def identity(self) -> JobIdentity:
        """Which job it is."""

    @property
    def rounds(self) -> int:
        """Number of its last round."""

    @property
    def parameters(self) -> int:
        """Numbers in its model."""

    @property
    def current(self) -> OpenExchange | None:
        """The open exchange, if there is one."""

    @property
    def failure(self) -> FedsiloError | None:
        """Why the job failed, once it has."""

    @property
    def result(self) -> Result | None:
        """The model, once it is there."""

    def history(self) -> list[dict[str, Any]]:
        """One record per completed round."""


class StatusSink(Protocol):
    """Where the status goes: a file on one machine, the job's status on a cluster."""

    def publish(self, status: Mapping[str, Any]) -> None:
        """Make the status known."""


@dataclass
class StatusFile:
    """A JSON file, replaced whole and only when the content changed."""

    path: Path
    last: Mapping[str, Any] | None = None

    def publish(self, status: Mapping[str, Any]) -> None:
        """Write the status; a full disk is no reason to stop."""
        if status != self.last:
            try:
                write_json(self.path, status)
            except OSError:
                return
            self.last = status


@dataclass(frozen=True)
class Sinks:
    """Several places at once."""

    sinks: Sequence[StatusSink]

    def publish(self, status: Mapping[str, Any]) -> None:
        """Make the status known in each."""
        for sink in self.sinks:
            sink.publish(status)


@dataclass
class Times:
    """When an exchange began, and when it ends if the aggregator keeps serving."""

    exchange: OpenExchange
    start: datetime
    deadline: datetime


@dataclass
class Account:
    """What one silo has contributed so far.

    :param sent: bytes of its accepted updates.
    :param update: digest of the last of them, scores apart.
    :param rounds: completed rounds by what became of the silo in them: `accepted`, `failed`, `missing`.
    :param personal_accuracy: of its own model, where every silo with one lets it be told.
    """

    last_round: int = 0
    samples: int | None = None
    sent: int = 0
    update: str | None = None
    rounds: Counter[str] = field(default_factory=Counter)
    personal_accuracy: float | None = None


class Status:
    """State of the job, its rounds and its silos, as plain values.

    The history only grows, so that each of its lines is added up once.

    :param refused: refusals by problem code, as the service counts them.
    :param served: bytes of blobs that each silo has fetched from this process.
    :param now: the time of day.
    """

    def __init__(
        self,
        federation: RunningJob,
        refused: Mapping[str, int],
        served: Mapping[str, int],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._federation = federation
        self._refused = refused
        self._served = served
        self._accounts = {silo: Account() for silo in federation.identity.silos}
        self._by_name = {silo.rpartition("/")[2]: account for silo, account in self._accounts.items()}
        self._now = now
        self._times: Times | None = None
        self._seen = 0
        self._metrics: dict[str, float] = {}
        self._training: dict[str, float] = {}
        self._curve: list[dict[str, Any]] = []

    def document(self, message: str) -> dict[str, Any]:
        """The present state.

        :param message: what a person should know beside it.
        """
        self._add_up()
        federation = self._federation
        current, failure = federation.current, federation.failure
        phase = "Failed" if failure else "Succeeded" if federation.result else "Running"
        left = current.round.deadline - current.round.elapsed if current else None
        result = federation.result
        return {
            "phase": phase,
            "reason": failure.reason if failure else phase,
            "message": str(failure) if failure else message,
            "round": self._seen,
            "rounds": federation.rounds,
            "step": current.exchange.phase.name if current and not failure else None,
            "siloProgress": self._silo_progress(),
            "deadlineSeconds": None if left is None else round(left),
            **self._round_times(None if failure else current),
            "metrics": self._metrics,
            "training": self._training,
            "curve": self._curve,
            "parameters": federation.parameters,
            "silos": [self._silo(silo) for silo in federation.identity.silos],
            "refused": dict(self._refused),
            "model": {"path": result.path.name, "sha256": result.sha256} if result else None,
        }

    def _add_up(self) -> None:
        history = self._federation.history()
        for line in history[self._seen :]:
            for outcome, part in OUTCOMES.items():
                for silo in line[part]:
                    self._accounts[silo].rounds[outcome] += 1
            for silo, count in line["bytes"].items():
                self._accounts[silo].sent += count
            for silo, samples in line["samples"].items():
                self._accounts[silo].last_round, self._accounts[silo].samples = line["round"], samples
            for name, phase, digest in receipts(line):
                if phase != EVALUATE:
                    self._by_name[name].update = digest
            if "metrics" in line:
                for silo, account in self._accounts.items():
                    account.personal_accuracy = line.get("personal", {}).get(silo)
            self._metrics = line.get("metrics", self._metrics)
            self._training = line["training"] or self._training
        if len(history) > self._seen:
            self._curve = curve(history)
        self._seen = len(history)

    def _silo_progress(self) -> str | None:
        """Silos that answered out of those that were asked, in the open exchange or else in the last round."""
        current, history = self._federation.current, self._federation.history()
        if current is not None:
            return f"{len(current.round.answered)}/{len(current.round.silos)}"
        if not history:
            return None
        last = history[-1]
        asked = {*last["samples"], *last["failed"], *last["missing"]}
        return f"{len(last['samples'])}/{len(asked)}"

    def _round_times(self, current: OpenExchange | None) -> dict[str, str | None]:
        """RFC 3339 times of the open exchange: told once, not once per look."""
        if current is None:
            return {"roundStartTime": None, "roundDeadline": None}
        now, found = self._now(), current.round
        deadline = now + timedelta(seconds=found.deadline - found.elapsed)
        if self._times is None or self._times.exchange is not current:
            self._times = Times(current, now - timedelta(seconds=found.elapsed), deadline)
        elif abs(deadline - self._times.deadline) > DRIFT:
            self._times.deadline = deadline
        return {
            "roundStartTime": timestamp(self._times.start),
            "roundDeadline": timestamp(self._times.deadline),
        }

    def accounts(self) -> Mapping[str, Account]:
        """What each silo has contributed to the completed rounds."""
        self._add_up()
        return self._accounts

    def _silo(self, silo: str) -> dict[str, Any]:
        account, current = self._accounts[silo], self._federation.current
        namespace, _, name = silo.rpartition("/")
        return {
            "name": name,
            "namespace": namespace,
            "state": _silo_state(self._federation, silo),
            "lastRound": account.last_round,
            "samples": account.samples,
            "bytes": account.sent,
            "update": account.update,
            "personalAccuracy": account.personal_accuracy,
            "fetched": self._served.get(silo, 0),
            "message": current.round.failed.get(silo, "") if current else "",
        }


def _silo_state(federation: RunningJob, silo: str) -> str:
    current = federation.current
    if current is None:
        return "Finished"
    if silo in current.round.failed:
        return "Failed"
    if silo in current.round.answered:
        return "Reported"
    return "Awaited" if silo in current.round.silos else "Idle"


def failed_status(reason: str, message: str) -> dict[str, Any]:
    """Status of an aggregator that could not begin."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "silos": [],
        "metrics": {},
        "model": None,
    }
