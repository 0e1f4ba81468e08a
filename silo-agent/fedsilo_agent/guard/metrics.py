"""One silo's part in one job as metrics: what left it and what was refused, from its audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedsilo.api.agent import SiloAgent
from fedsilo.errors import FedsiloError
from fedsilo.files.json_files import read_with_digest
from fedsilo.metrics import JOB, Exposition, Sample, Series, volume_series
from fedsilo.silo.volume import Volume
from fedsilo_agent.guard.audit import EVENTS
from fedsilo_agent.guard.client import AggregatorClient

SILO = (*JOB, "silo")

ROUND = Series("fedsilo_guard_round", "gauge", SILO, "Round of the task that the trainer was given last.")
ANSWER = Series(
    "fedsilo_guard_last_answer_timestamp_seconds",
    "gauge",
    SILO,
    "When the aggregator answered last (Unix time); None before the first time.",
)
BYTES = Series(
    "fedsilo_payload_bytes_total",
    "counter",
    (*SILO, "direction", "kind"),
    "Tensors that were signed to leave (sent), by payload kind; models fetched by this process (received, blob).",
)
AUDIT = Series(
    "fedsilo_audit_events_total",
    "counter",
    (*SILO, "event"),
    "Lines of the audit log by event, such as departure, acknowledged, refused, task-refused, failed.",
)

VOLUME = volume_series("guard", SILO)

DECLARED_SERIES = (ROUND, ANSWER, BYTES, AUDIT, VOLUME.free, VOLUME.size)


class AuditTotals:
    """Sums over an audit log, of which only what is new is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.events: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """Bytes by payload kind."""

    def update(self) -> None:
        """Read what is new; a line that is being written counts the next time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    # A line that was changed stops the guard, not its metrics.
                    with suppress(ValueError, KeyError, TypeError, AttributeError):
                        self._add(json.loads(line))

    def _add(self, line: dict[str, Any]) -> None:
        self.events[line["event"]] += 1
        for kind, count in line.get("kinds", {}).items():
            self.sent[kind] += count["bytes"]


def exposition(agent: SiloAgent, volume: Volume, client: AggregatorClient) -> Exposition:
    """The metrics that a silo's guard serves to monitors."""
    job, tally = agent.spec.job, AuditTotals(volume.audit / "log.jsonl")
    labels = (job.namespace, job.name, agent.spec.silo.name)

    def read() -> Iterator[Sample]:
        tally.update()
        with suppress(FedsiloError):  # a damaged file is written again with the next task
            task = read_with_digest(volume.task)
            if task is not None:
                yield Sample(ROUND, labels, task["round"])
        if client.answered is not None:
            yield Sample(ANSWER, labels, client.answered)
        for event in EVENTS:
            yield Sample(AUDIT, (*labels, event), tally.events[event])
        for kind, count in tally.sent.items():
            yield Sample(BYTES, (*labels, "sent", kind), count)
        yield Sample(BYTES, (*labels, "received", "blob"), client.received)
        yield from VOLUME.read(labels, volume.root)

    return Exposition("guard", DECLARED_SERIES, read)
