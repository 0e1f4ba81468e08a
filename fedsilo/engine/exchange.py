"""One open exchange: the tasks that the silos were given, and what has come back so far."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.durable import read_json, sync_directory, write_json
from fedsilo.engine.round import OpenRound, RoundOutcome, fatal_failure
from fedsilo.engine.sealing import SealedTask
from fedsilo.errors import Problem, SiloFailed
from fedsilo.methods.interface import Exchange
from fedsilo.methods.schedule import exchange_id
from fedsilo.wire import AcceptedUpdate, Expected, open_update, task_digest


@dataclass
class OpenExchange:
    """Tasks and answers of the open exchange, over its directory.

    These files outlive a restart: durable updates `<task>.update`, `failures.json`, and `elapsed.json`, the serving
    time so far.

    :param tasks: silo -> its task.
    :param broadcast: digests of the blobs that the tasks refer to.
    """

    job: str
    exchange: Exchange
    directory: Path
    tasks: Mapping[str, SealedTask]
    broadcast: frozenset[str]
    round: OpenRound
    accepted: dict[str, str] = field(default_factory=dict)
    failure: SiloFailed | None = None

    def recover(self) -> None:
        """Load the updates, failures and serving time of before a restart."""
        self.round = self.round.wait(read_json(self.directory / "elapsed.json") or 0.0)
        for silo, task in self.tasks.items():
            path = self.update_path(task.id)
            if path.exists():
                self._count(silo, read_update(path))
        for silo, failure in self._failures().items():
            self._apply_failure(silo, failure["reason"], failure["message"])

    def task(self, silo: str) -> SealedTask | None:
        """The silo's task while it is awaited."""
        return self.tasks[silo] if self.is_open and silo in self.round.awaited else None

    @property
    def is_open(self) -> bool:
        """Whether silos may still answer."""
        return self.round.outcome is RoundOutcome.OPEN

    def silo_of(self, task: str) -> str | None:
        """The silo that a task of this exchange was given to; None for any other task."""
        return next((silo for silo, given in self.tasks.items() if given.id == task), None)

    def update_path(self, task: str) -> Path:
        """Where the durable update of a task lies."""
        return self.directory / f"{task}.update"

    def partial_path(self, task: str) -> Path:
        """Where the bytes of an unfinished update of a task are collected."""
        return self.directory / f"{task}.part"

    def expected(self, task: str, sender: str) -> Expected:
        """What an update for a task of this exchange must be.

        :raises Problem: `wrong-sender`, or `round-closed` when the round has come to its end.
        """
        given = self.tasks.get(sender)
        if given is None or given.id != task:
            raise Problem("wrong-sender", f"task {task} was given to {self.silo_of(task)}, not to {sender}")
        if not self.is_open:
            raise Problem(
                "round-closed", f"round {exchange_id(self.exchange)} was closed before this update was whole"
            )
        return Expected(
            job=self.job,
            task=task,
            round=self.exchange.round,
            sender=sender,
            contract=given.contract,
            task_digest=task_digest(given.sealed),
        )

    def accept(self, silo: str, upload: Path, update: AcceptedUpdate) -> None:
        """Move the silo's checked update, which is on the disk, to `update_path`, and count the answer."""
        upload.replace(self.update_path(update.header.task))
        sync_directory(self.directory)
        self._count(silo, update)

    def fail(self, silo: str, reason: str, message: str) -> None:
        """Record why the silo cannot answer; some reasons fail the job at once."""
        failures = self._failures() | {silo: {"reason": reason, "message": message}}
        write_json(self.directory / "failures.json", failures)
        self._apply_failure(silo, reason, message)

    def wait(self, seconds: float) -> None:
        """Add serving time; whole seconds are stored, so that down time does not count."""
        before = int(self.round.elapsed)
        self.round = self.round.wait(seconds)
        if int(self.round.elapsed) != before:
            write_json(self.directory / "elapsed.json", self.round.elapsed)

    def forget_failures(self) -> None:
        """Give the failed silos another try, and the round its full time, when the job is resumed."""
        for name in ("failures.json", "elapsed.json"):
            (self.directory / name).unlink(missing_ok=True)

    def _count(self, silo: str, update: AcceptedUpdate) -> None:
        self.accepted[update.header.task] = update.digest
        self.round = self.round.answer(silo)

    def _failures(self) -> dict[str, dict[str, str]]:
        return read_json(self.directory / "failures.json") or {}

    def _apply_failure(self, silo: str, reason: str, message: str) -> None:
        self.round = self.round.fail(silo, f"{reason}: {message}")
        if silo not in self.round.answered:
            self.failure = fatal_failure(silo, reason, message) or self.failure


def read_update(path: Path) -> AcceptedUpdate:
    """Header and digest of an update that was checked when it came in."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with open_update(path) as update:
        return AcceptedUpdate(update.header, digest)
