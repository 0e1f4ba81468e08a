"""The hash-chained audit log: every departure and every refusal, one line each.

Each line carries the digest of the line before it and its own, so that no line can be changed, dropped or inserted
without breaking the chain. Rewriting everything after a line, or cutting the end off, leaves a chain that
holds: keep the last digest somewhere else from time to time, as the guard's own log does. What is cut off of the lines
that were there when the trainer was given its last task is noticed. A line is on the disk before what it describes
leaves the silo.

The log is also the guard's memory: after a restart it tells what was acknowledged last, which model the trainer
announced, which initial weights it was handed, and which bytes were signed. No other file has to be trusted for that.

Neither the trainer nor the aggregator can fill the disk with it. Texts are cut to 4,000 bytes, and what is
refused or fails may add 4 MiB, and then 1 MiB a day: the guard takes no further task until there is room.
Departures are not limited, since each is an answer to a task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsilo.files.durable import append_durably, make_directory, sync_directory, truncate
from fedsilo.silo.audit_chain import (
    FILE,
    GENESIS,
    content_of,
    line_digest,
    text_of,
    verified_lines,
    whole_lines,
)
from fedsilo.silo.ledger_head import LedgerHead
from fedsilo.silo.policy import EgressTotals
from fedsilo.transforms.secure_sum.steps import STEPS
from fedsilo_agent.guard.exchanges import Answer, AuditedTask, ExchangeKey, FailureLog
from fedsilo_agent.guard.report import ReceiptsReport
from fedsilo_agent.guard.text import bounded_text

log = logging.getLogger("fedsilo.guard")

EVENTS = (
    "signature",
    "schema",
    "readiness",
    "departure",
    "acknowledged",
    "not-accepted",
    "refused",
    "task-refused",
    "failed",
    "finished",
)
"""The only events that are ever written."""

LIMITED_EVENTS = frozenset({"schema", "readiness", "not-accepted", "refused", "task-refused", "failed"})
"""Events that the other sides can cause as often as they like."""

STOCK_BYTES, BYTES_PER_DAY = 4 << 20, 1 << 20
"""What lines of `LIMITED_EVENTS` may add to the log at once, and per day after that."""

DAY_SECONDS = 86_400.0


@dataclass
class AuditRecord:
    """What the log says of the guard's own past.

    :ivar acknowledged: tasks whose updates the aggregator has: the last one, after the one before it. Those that a
        guard answers by itself do not count: no state of the trainer comes of them.
    :ivar last_acknowledged: the last task whose update, or message, the aggregator has.
    :ivar messages: tasks that it has answered by itself.
    :ivar signature: digest of the model's signature that the trainer announced before round 1.
    :ivar schema: digest of the schema of the data that it announced with it, if it did.
    :ivar announced: digest of what was last told of the data, names or findings.
    :ivar announcements: how often something else was.
    :ivar announced_bytes: of all of it.
    :ivar departures: task -> digest of its update.
    :ivar answered: round and phase -> what departed in this exchange.
    :ivar reported: round and phase -> what was reported of failures in it.
    :ivar initial_weights: digest of the initial weights from which the first departure came, where its task had any.
    :ivar records: examples, or persons, from whose number the noise of the first departure followed, where it did.
    :ivar ledger: how far the ledger had come with the last departure that was charged.
    :ivar finished: whether its last line says that the job is over.
    """

    acknowledged: tuple[str, ...] = ()
    last_acknowledged: str | None = None
    messages: set[str] = field(default_factory=set)
    signature: str | None = None
    schema: str | None = None
    announced: str | None = None
    announcements: int = 0
    announced_bytes: int = 0
    departures: dict[str, str] = field(default_factory=dict)
    answered: dict[ExchangeKey, Answer] = field(default_factory=dict)
    reported: dict[ExchangeKey, FailureLog] = field(default_factory=dict)
    initial_weights: str | None = None
    records: int | None = None
    ledger: LedgerHead | None = None
    finished: bool = False

    def add(self, line: Mapping[str, Any]) -> None:
        """Take a line of the log."""
        self.finished = line["event"] == "finished"
        match line["event"]:
            case "acknowledged":
                task = self.last_acknowledged = line.get("task", "")
                if task in self.messages:
                    return
                self.acknowledged = (*(other for other in self.acknowledged if other != task), task)[-2:]
            case "signature":
                self.signature, self.schema = line.get("digest"), line.get("schema")
            case "schema" | "readiness":
                self.announced = line.get("digest")
                self.announcements += 1
                self.announced_bytes += line.get("bytes", 0)
            case "departure":
                task, digest = line.get("task", ""), line.get("digest", "")
                self.departures[task] = digest
                if line.get("step") in STEPS:
                    self.messages.add(task)
                self.initial_weights = self.initial_weights or line.get("initialWeights")
                self.records = self.records or line.get("records")
                self.ledger = LedgerHead.of_line(line) or self.ledger
                # Lines without a phase are of a guard that wrote none; nearly every phase is called like its step.
                exchange = line.get("round", 0), line.get("phase", line.get("step", ""))
                size = sum(count["bytes"] for count in line.get("kinds", {}).values())
                step, model = line.get("step", ""), line.get("model")
                self.answered[exchange] = Answer(task, line.get("taskDigest"), digest, size, step, model)
            case "refused" | "failed" | "not-accepted" if "told" in line:
                exchange = line["round"], line["phase"]
                before = self.reported.get(exchange, FailureLog())
                size, task = line["toldBytes"], line["task"]
                self.reported[exchange] = before.and_one(size, task, line.get("taskDigest"))

    @property
    def size(self) -> int:
        """Bytes that have left: tensors of updates, each once, and texts in which the trainer may have a part."""
        texts = sum(reports.size for reports in self.reported.values()) + self.announced_bytes
        return texts + sum(answer.size for answer in self.answered.values())

    def sent_before(self, asked: ExchangeKey) -> EgressTotals:
        """What has left beside the update of an exchange, whose task may be given again."""
        answer, reports = self.answered.get(asked), self.reported.get(asked)
        failed = {round for (round, _), found in self.reported.items() if found.task is not None}
        return EgressTotals(
            frozenset({round for round, _ in self.answered} | failed),
            self.size - (0 if answer is None else answer.size),
            0 if reports is None else reports.size,
        )

    def audited_task(self, task: str) -> AuditedTask:
        """A task whose update has departed; of no exchange where another task has answered its since."""
        for (round, phase), answer in self.answered.items():
            if answer.task == task:
                return AuditedTask(task, round, phase, answer.task_digest)
        return AuditedTask(task, 0, "", None)

    def acknowledged_before(self, task: str) -> str | None:
        """The last acknowledged task other than this one.

        An aggregator that has lost the answer to a task gives it again: if it must be computed again, then from the
        same private state.
        """
        return next((other for other in reversed(self.acknowledged) if other != task), None)


class WriteBudget:
    """Bytes that may be written: a stock that is refilled slowly."""

    def __init__(self) -> None:
        self._left = float(STOCK_BYTES)
        self._at = time.monotonic()

    def spend(self, size: int) -> None:
        """Count bytes that were written."""
        self._refill()
        self._left -= size

    def seconds_left(self) -> float:
        """Time until more may be written, 0 where it may be now."""
        self._refill()
        return max(0.0, -self._left) * DAY_SECONDS / BYTES_PER_DAY

    def _refill(self) -> None:
        now = time.monotonic()
        self._left = min(STOCK_BYTES, self._left + (now - self._at) * BYTES_PER_DAY / DAY_SECONDS)
        self._at = now


class AuditLog:
    """Append-only log in `directory/log.jsonl`.

    :param report: is given every line, and told when it was given all of them.
    :ivar record: what is in it, as far as the guard needs it again.
    :ivar allowance: what refusals and failures may still add.
    :raises AuditBroken: when the chain of an existing log does not hold.
    """

    def __init__(self, directory: Path, report: ReceiptsReport | None = None) -> None:
        make_directory(directory)
        self.path = directory / FILE
        self.record = AuditRecord()
        self.allowance = WriteBudget()
        self._report = report
        content = content_of(self.path)
        whole = whole_lines(content)
        self._sequence, self._previous = 0, GENESIS
        for line, digest in verified_lines(self.path, whole):
            self._take(line, digest)
            self._sequence, self._previous = self._sequence + 1, digest
        self._size = len(whole)
        if torn := len(content) - len(whole):
            # A crash came before anything that it covers left.
            log.warning(
                "%s: %d bytes of a torn last line after line %d are removed", self.path, torn, self._sequence
            )
        _cut(self.path, self._size)
        # An earlier guard may have died between the first line and this: a power cut would take the whole log.
        sync_directory(directory)
        self._lock = threading.Lock()
        if report is not None:
            report.publish()

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self._sequence

    def write(self, event: str, **facts: Any) -> None:
        """Append one of `EVENTS` durably; from any thread.

        :raises OSError: when the disk is full; the log is as before then.
        """
        with self._lock:
            self._append(event, facts)

    def _append(self, event: str, facts: Mapping[str, Any]) -> None:
        line = {
            "seq": self._sequence,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            **{name: bounded_text(fact) if isinstance(fact, str) else fact for name, fact in facts.items()},
            "previous": self._previous,
        }
        digest = line_digest(line)
        text = text_of(line, digest)
        _cut(self.path, self._size)  # what a full disk left of a line
        append_durably(self.path, text)
        self._size += len(text) + 1
        self._sequence += 1
        self._previous = digest
        self._take(line, digest)
        if self._report is not None:
            self._report.publish()
        if event in LIMITED_EVENTS:
            self.allowance.spend(len(text))
        log.info("audit line %d, %s: %s", line["seq"], event, digest)

    def _take(self, line: Mapping[str, Any], digest: str) -> None:
        self.record.add(line)
        if self._report is not None:
            self._report.take(line, digest)


def verify(path: Path) -> tuple[int, str]:
    """Check the whole chain; number of lines and digest of the last.

    :raises AuditBroken: naming the first line that does not follow from the one before.
    """
    digests = [digest for _, digest in verified_lines(path, content_of(path))]
    return len(digests), digests[-1] if digests else GENESIS


def _cut(path: Path, size: int) -> None:
    """Drop what comes after so many bytes."""
    if path.exists() and path.stat().st_size > size:
        truncate(path, size)
