"""One open exchange, with the tasks that the silos were given, and what has come back so far."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.encodings.check import require_decodable_update
from fedsilo.engine.round import OpenRound, RoundOutcome, fatal_failure
from fedsilo.engine.sealing import SealedTask
from fedsilo.errors import FileDamaged, Problem, SiloFailed
from fedsilo.files.durable import remove, rename, sync_directory, unlink
from fedsilo.files.json_files import read_with_digest, require_fields, write_with_digest
from fedsilo.methods.interface import Exchange
from fedsilo.methods.schedule import exchange_id
from fedsilo.transforms.transform import Broadcast
from fedsilo.wire import (
    AcceptedUpdate,
    ExpectedUpdate,
    UpdateCheck,
    VerifyKey,
    signed_part,
    task_digest,
    update_digest,
)

log = logging.getLogger("fedsilo.engine")

CHUNK_BYTES = 1 << 20
"""Bytes of an update that are checked at a time."""


@dataclass(frozen=True)
class StoredUpdate:
    """An accepted update in its file.

    :param size: of the file, in bytes.
    :param signed: header and signature, which are those that were accepted.
    """

    path: Path
    size: int
    signed: bytes


@dataclass
class OpenExchange:
    """Tasks and answers of the open exchange, over its directory.

    `accept`, `fail` and `wait`, which wait for the disk, may be called in any threads at the same time, and beside all
    others.

    These files outlive a restart: durable updates `<task>.update`, `failures.json`, and `elapsed.json`, the serving
    time so far.

    :param tasks: silo -> its task.
    :param broadcast: what the tasks hand out.
    :param blobs: digests of the blobs that the tasks refer to.
    :ivar damaged: silos whose accepted update was found damaged after a restart, and dropped.
    """

    job: str
    exchange: Exchange
    directory: Path
    tasks: Mapping[str, SealedTask]
    broadcast: Broadcast
    blobs: frozenset[str]
    round: OpenRound
    accepted: dict[str, str] = field(default_factory=dict)
    failure: SiloFailed | None = None
    damaged: set[str] = field(default_factory=set)
    _failures: dict[str, dict[str, str]] = field(default_factory=dict)
    _changing: threading.RLock = field(default_factory=threading.RLock)  # the round, and who has failed

    def recover(self, keys: Mapping[str, VerifyKey]) -> None:
        """Load the updates, failures and serving time of before a restart.

        An update is checked as it was on arrival. One that does not hold any more is dropped, its silo is asked again,
        whatever it reported before, and the round gets its full time.

        :param keys: silo -> the key that signs its updates.
        :raises FileDamaged: when failures or serving time cannot be read.
        """
        if any(
            self.directory.iterdir()
        ):  # what is found counts, though its rename may have been the last step
            sync_directory(self.directory)
        self._failures = self._read_failures()
        for silo, task in self.tasks.items():
            path = self.update_path(task.id)
            if not path.exists():
                continue
            try:
                self._count(silo, check_update(path, self._expected_update(silo), keys[silo]))
            except (Problem, OSError) as problem:
                log.warning(
                    "%s: the accepted update of %s does not hold any more and was dropped; the silo is asked again: %s",
                    path,
                    silo,
                    problem,
                )
                self.damaged.add(silo)
        if self.damaged:
            self._drop_damaged()
        remedy, fields = "remove it: the round gets its full time", {"seconds": (int, float)}
        elapsed = read_with_digest(self._elapsed_path, remedy, fields)
        self.round = self.round.wait(elapsed["seconds"] if elapsed else 0.0)
        for silo, failure in self._failures.items():
            self._apply_failure(silo, failure["reason"], failure["message"])

    def task(self, silo: str) -> SealedTask | None:
        """The silo's task while it is awaited."""
        return self.tasks[silo] if self.is_open and silo in self.round.awaited_silos else None

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

    def expected_update(self, task: str, sender: str) -> ExpectedUpdate:
        """What an update for a task of this exchange must be.

        :raises Problem: `wrong-sender`, or `round-closed` when the round has come to its end.
        """
        self._require_open(task, sender)
        return self._expected_update(sender)

    def accept(self, silo: str, upload: Path, update: AcceptedUpdate) -> None:
        """Move the silo's checked update, which is on the disk, to `update_path`, and count the answer."""
        rename(upload, self.update_path(update.header.task))
        sync_directory(self.directory)
        with self._changing:
            self._count(silo, update)
            if silo in self._failures:
                # Overtaken: should the update be lost one day, the silo is asked for it again.
                self._store_failures({other: why for other, why in self._failures.items() if other != silo})

    def fail(self, silo: str, task: str, reason: str, message: str) -> bool:
        """Record why the silo cannot answer, unless it has by now; some reasons fail the job at once.

        The round does not end meanwhile: nothing is written into the directory of one that is over.

        :returns: whether that counts.
        :raises Problem: `wrong-sender`, or `round-closed`.
        """
        with self._changing:
            if silo in self.round.answered:
                return False
            self._require_open(task, silo)
            self._store_failures(self._failures | {silo: {"reason": reason, "message": message}})
            self._apply_failure(silo, reason, message)
            return True

    def _require_open(self, task: str, sender: str) -> None:
        """Return if the silo may still answer this task."""
        given = self.tasks.get(sender)
        if given is None or given.id != task:
            raise Problem("wrong-sender", f"task {task} was given to {self.silo_of(task)}, not to {sender}")
        if not self.is_open:
            raise Problem(
                "round-closed",
                f"round {exchange_id(self.exchange)} was closed before the answer to task {task} was whole",
            )

    def wait(self, seconds: float) -> None:
        """Add serving time in seconds; whole ones are stored, so that down time does not count.

        They are stored before they count: no silo is refused for a time that a crash takes back.
        """
        elapsed = self.round.elapsed + seconds
        if int(elapsed) != int(self.round.elapsed):
            write_with_digest(self._elapsed_path, {"seconds": elapsed})
        with self._changing:
            self.round = self.round.wait(seconds)

    def stored_updates(self, silos: Sequence[str]) -> dict[str, StoredUpdate]:
        """Silo, in this order, -> its accepted update, where there is one.

        :raises FileDamaged: when a file does not begin with the header and signature that were accepted.
        """
        answered = [silo for silo in silos if silo in self.round.answered]
        return {silo: self._stored_update(self.tasks[silo].id) for silo in answered}

    def _stored_update(self, task: str) -> StoredUpdate:
        path, digest = self.update_path(task), self.accepted[task]
        try:
            signed, size = signed_part(path), path.stat().st_size
        except (Problem, OSError) as error:
            raise FileDamaged(f"{path}: the accepted update {digest[:12]} cannot be read: {error}") from error
        if (found := update_digest(signed)) != digest:
            raise FileDamaged(f"{path}: is update {found[:12]}, not {digest[:12]}, which was accepted")
        return StoredUpdate(path, size, signed)

    def forget_failures(self) -> None:
        """Give the failed silos another try, and the round its full time, when the job is resumed."""
        for path in (self._failures_path, self._elapsed_path):
            unlink(path, missing_ok=True)
        sync_directory(self.directory)

    @property
    def _failures_path(self) -> Path:
        return self.directory / "failures.json"

    @property
    def _elapsed_path(self) -> Path:
        return self.directory / "elapsed.json"

    def _expected_update(self, silo: str) -> ExpectedUpdate:
        task = self.tasks[silo]
        return ExpectedUpdate(
            job=self.job,
            task=task.id,
            round=self.exchange.round,
            sender=silo,
            contract=task.contract,
            task_digest=task_digest(task.sealed),
        )

    def _drop_damaged(self) -> None:
        """Let go of damaged updates; they go last, so that an interruption repeats all of it."""
        self._store_failures({silo: why for silo, why in self._failures.items() if silo not in self.damaged})
        for path in (self._elapsed_path, *(self.update_path(self.tasks[silo].id) for silo in self.damaged)):
            if os.path.lexists(path):
                remove(path)
        sync_directory(self.directory)

    def _count(self, silo: str, update: AcceptedUpdate) -> None:
        self.accepted[update.header.task] = update.digest
        self.round = self.round.answer(silo)

    def _read_failures(self) -> dict[str, dict[str, str]]:
        path, remedy = self._failures_path, "remove it: the silos that failed are asked again"
        found = read_with_digest(path, remedy) or {}
        require_fields(path, found, dict.fromkeys(found, dict), remedy)
        for failure in found.values():
            require_fields(path, failure, {"reason": str, "message": str}, remedy)
        return found

    def _store_failures(self, failures: dict[str, dict[str, str]]) -> None:
        write_with_digest(self._failures_path, failures)
        self._failures = failures

    def _apply_failure(self, silo: str, reason: str, message: str) -> None:
        # The failure first: a round that is closed without this silo, and looked at now, must not be folded.
        if silo not in self.round.answered:
            self.failure = fatal_failure(silo, reason, message) or self.failure
        self.round = self.round.fail(silo, f"{reason}: {message}")


def check_update(path: Path, expected: ExpectedUpdate, key: VerifyKey) -> AcceptedUpdate:
    """Check the file of an update as its bytes were checked on arrival.

    :raises Problem: as `UpdateCheck`, and as `require_decodable_update`.
    """
    checker = UpdateCheck(expected, key)
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            checker.feed(piece)
    accepted = checker.finish()
    require_decodable_update(expected.contract, path)
    return accepted
