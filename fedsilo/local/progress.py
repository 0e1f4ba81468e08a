"""What is known of a local run: read from the files that its processes write, or set by the run itself."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsilo.api.common import Condition
from fedsilo.api.conditions import ConditionType, JobPhase
from fedsilo.api.figures import finite_figures
from fedsilo.api.loading import JobManifest
from fedsilo.api.status import FederatedJobStatus, condition_of
from fedsilo.engine.record import total_samples
from fedsilo.errors import PolicyRefused
from fedsilo.files.json_files import read_json
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods import registry
from fedsilo.methods.main_metric import main_metric
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo.silo.trainer_files import read_object


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    :param document: what `--json` prints.
    :param exit_code: see `fedsilo.errors`.
    :param exchanged: bytes that a silo sent and fetched in this run, mean over silos.
    :param rounds: records of the completed rounds.
    """

    document: dict[str, Any]
    exit_code: int
    exchanged: float
    rounds: Sequence[Mapping[str, Any]]


@dataclass
class RunProgress:
    """State of the run; `read` or `set` brings it up to date.

    :param starting: what is shown until the aggregator's first status.
    :param rounds: records of the completed rounds.
    :param notes: what the user should know and no status contains.
    :param isolation: how trainers describe their isolation -> the silos of those trainers.
    :param cause: reason and message of the aggregator's end, as far as it left any.
    :ivar status: the job's status as JSON has it, by its aggregator once it has begun.
    """

    federation: JobManifest
    workdir: RunDirectory
    starting: str = "starting aggregator, guards and trainers"
    rounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    isolation: dict[str, list[str]] = field(default_factory=dict)
    cause: tuple[str, str] | None = None
    began: float = field(default_factory=time.monotonic)
    _first_round: tuple[int, float] | None = None
    _stale: float = field(default_factory=time.time)
    status: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        condition = condition_of(ConditionType.RUNNING, "False", "Starting", self.starting)
        self.status = stated_status(JobPhase.STARTING, condition)

    def read(self) -> None:
        """Read the aggregator's status and history, and the trainers' description of their isolation."""
        path, status = self.workdir.aggregator / "status.json", None
        # What an earlier run left in the same directory does not describe this one.
        if path.exists() and path.stat().st_mtime >= self._stale:
            status = read_json(path)
        if sum(map(len, self.isolation.values())) < len(self.federation.silos):
            self.isolation = self._isolation()
        self.set(status or self.status, _read_lines(self.workdir.aggregator / "history.jsonl"))

    def set(self, status: Mapping[str, Any], rounds: list[dict[str, Any]]) -> None:
        """Take status and history as they are now."""
        self.status, self.rounds = status, rounds
        if self._first_round is None and self.status["phase"] == JobPhase.RUNNING:
            self._first_round = (len(self.rounds), time.monotonic())

    def note(self, text: str) -> None:
        """Add a note that no status contains."""
        self.notes.append(text)

    @property
    def condition(self) -> Mapping[str, Any]:
        """The condition that describes what the job does, or how it ended."""
        found: Mapping[str, Any] = self.status["conditions"][-1]
        return found

    @cached_property
    def main_metric(self) -> str | None:
        """Name of the metric that stands for the job."""
        return main_metric(registry.bind(self.federation.job.spec))

    @property
    def has_begun(self) -> bool:
        """Whether the aggregator has published a status."""
        return bool(self.status["phase"] != JobPhase.STARTING)

    @property
    def total(self) -> int:
        """Rounds of the job, 0 while unknown."""
        return int(self.status.get("rounds", 0))

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the rounds of this run; None before one is complete."""
        if self._first_round is None:
            return None
        done = len(self.rounds) - self._first_round[0]
        if done <= 0:
            return None
        return (time.monotonic() - self._first_round[1]) / done * (self.total - len(self.rounds))

    @property
    def silos(self) -> list[dict[str, Any]]:
        """State of each silo, in the job's order; before the aggregator's first status, that they are starting."""
        if self.status["silos"]:
            return list(self.status["silos"])
        return [
            {"name": silo.metadata.name, "state": "Starting", "lastRound": 0, "bytesSent": 0}
            for silo in self.federation.silos
        ]

    @property
    def exchanged_bytes(self) -> float:
        """Bytes that a silo sent and fetched in this run, mean over silos."""
        silos = self.silos
        sent = sum(silo.get("bytesSent", 0) for silo in silos)
        return float(sent + sum(self.status.get("fetched", {}).values())) / len(silos)

    def _isolation(self) -> dict[str, list[str]]:
        words: dict[str, list[str]] = {}
        for silo in self.federation.silos:
            path = self.workdir.volume(silo.metadata.name).drop / "signature.json"
            with suppress(PolicyRefused):  # not there yet, or something that its guard refuses
                words.setdefault(str(read_object(path).get("isolation")), []).append(silo.metadata.name)
        return words

    def outcome(self, seconds: float) -> dict[str, Any]:
        """The result as one document; `message` is there where the job failed, or a reader must know something."""
        job = self.federation.job
        succeeded = self.status["phase"] == JobPhase.COMPLETE
        model = self.status.get("model") if succeeded else None
        private = job.spec.privacy.differential_privacy
        return {
            "phase": "Succeeded" if succeeded else "Failed",
            **({"reason": "Succeeded"} | self._remarks() if succeeded else self.failure()),
            "job": str(job),
            "method": job.spec.method.name,
            "rounds": len(self.rounds),
            "samples": self._samples() if private is None else None,  # which no silo tells then
            "metrics": finite_figures(self.status["metrics"]),
            **({} if private is None else {"privacy": str(private)}),
            **({"secure": True} if job.spec.aggregation.secure else {}),
            **{
                name: self.status[name]
                for name in ("score", "best", "scores", "findings")
                if self.status.get(name)
            },
            "silos": [
                {key: silo.get(key) for key in ("name", "state", "samples", "lastRound")}
                | {key: silo[key] for key in ("kept", "message") if silo.get(key) is not None}
                | self._budget(silo["name"])
                for silo in self.silos
            ],
            "model": {"path": str(self.workdir.root / "model.safetensors"), "sha256": model["sha256"]}
            if model
            else None,
            "seconds": round(seconds, 3),
        }

    def _remarks(self) -> dict[str, str]:
        """What a reader of the result must know."""
        message = next((one.get("message") for one in self.status.get("conditions", ())), None)
        return {"message": message} if message else {}

    def _samples(self) -> int:
        """Examples of all silos; of sums, of those of the last round, since nobody knows each silo's."""
        known = sum(silo.get("samples") or 0 for silo in self.silos)
        return known or (total_samples(self.rounds[-1]) if self.rounds else 0)

    def _budget(self, silo: str) -> dict[str, Any]:
        """What is spent of a silo's privacy budget for the job's dataset, where its guard keeps a ledger of one."""
        path = self.workdir.ledgers(silo)
        dataset = self.federation.job.spec.data.dataset
        if not (path / f"{dataset}.jsonl").exists():
            return {}
        account = PrivacyLedger(path, dataset).account(datetime.now(UTC))
        budget = account.budget
        return {} if budget is None else {"budget": budget.to_dict() | {"spent": account.spent_epsilon}}

    def failure(self) -> dict[str, str]:
        """Reason and message of a run that ended without a model; the aggregator may have died before reporting any."""
        if self.status["phase"] == JobPhase.FAILED:
            return {name: self.condition[name] for name in ("reason", "message")}
        log_file = self.workdir.logs / "aggregator.log"
        if self.cause is not None:
            return {"reason": self.cause[0], "message": f"{self.cause[1]}; see {log_file}"}
        return {"reason": "AggregatorLost", "message": f"the aggregator ended without a word; see {log_file}"}


def stated_status(phase: JobPhase, condition: Condition) -> dict[str, Any]:
    """A status that the run itself states, where no aggregator does."""
    return FederatedJobStatus.model_construct(phase=phase, conditions=(condition,)).document()


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The records before the first that cannot be read: it is being written, or the aggregator will refuse it."""
    records = []
    for line in path.read_bytes().split(b"\n")[:-1] if path.is_file() else ():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(record, dict):
            break
        records.append(record)
    return records
