"""The rounds of one job as metrics: from its history, its open round, and its silos' requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from fedsilo.api.conditions import GuardState
from fedsilo.api.job import FederatedJob
from fedsilo.engine.status import OUTCOMES, StatusSource
from fedsilo.metrics import JOB, Distribution, Exposition, Sample, Series, volume_series
from fedsilo.wire.problems import STATUS
from fedsilo_aggregator.http import AggregatorService

SILO = (*JOB, "silo")

DURATION = Series(
    "fedsilo_round_duration_seconds",
    "histogram",
    (*JOB, "method"),
    "Completed rounds by the time that they were open to the silos, as a deadline counts it.",
    (1, 5, 15, 60, 300, 900, 3600, 14400, 86400),
)
SILOS = Series(
    "fedsilo_round_silos",
    "gauge",
    (*JOB, "state"),
    "Silos drawn for the open round: answered, awaited, failed.",
)
QUORUM = Series("fedsilo_round_quorum", "gauge", JOB, "Answers without which the open round is lost.")
ELAPSED_TIME = Series(
    "fedsilo_round_elapsed_seconds", "gauge", JOB, "For how long the open round has been open to the silos."
)
DEADLINE = Series(
    "fedsilo_round_deadline_seconds", "gauge", JOB, "For how long a round may be open to the silos."
)
AWAITED_SILO = Series("fedsilo_silo_awaited", "gauge", SILO, "1 while the open round waits for the silo.")
HINDRANCE = Series(
    "fedsilo_silo_hindrance",
    "gauge",
    (*SILO, "reason"),
    "1 while the silo's guard says that it cannot go on: StorageFull, AuditFull.",
    renamed=False,
)
UPDATES = Series(
    "fedsilo_silo_updates_total",
    "counter",
    (*SILO, "result"),
    "Completed rounds by what became of the silo in them: accepted, failed, missing at the deadline.",
)
REPORT = Series(
    "fedsilo_silo_last_report_timestamp_seconds",
    "gauge",
    SILO,
    "When the silo's guard was last heard from (Unix time); it asks every 25 s. None before the first time.",
)
BYTES = Series(
    "fedsilo_silo_bytes_total",
    "counter",
    (*SILO, "direction"),
    "Bytes of accepted updates of completed rounds (received), and of models fetched from this process (sent).",
)
REJECTED_UPDATES = Series(
    "fedsilo_rejected_updates_total",
    "counter",
    (*JOB, "reason"),
    "Requests and updates that were refused, by problem code (docs/wire.md); "
    "interrupted: transfers whose connection broke.",
)
DAMAGED_UPDATES = Series(
    "fedsilo_damaged_updates_total",
    "counter",
    JOB,
    "Accepted updates of the open round that did not hold any more when this process began, and were asked for again.",
)
VOLUME = volume_series("aggregator", JOB)

DECLARED_SERIES = (
    DURATION,
    SILOS,
    QUORUM,
    ELAPSED_TIME,
    DEADLINE,
    AWAITED_SILO,
    HINDRANCE,
    UPDATES,
    REPORT,
    BYTES,
    REJECTED_UPDATES,
    DAMAGED_UPDATES,
    VOLUME.free,
    VOLUME.size,
)


def exposition(
    job: FederatedJob, service: AggregatorService, status: StatusSource, directory: Path
) -> Exposition:
    """The metrics that a job's aggregator serves to monitors.

    :param directory: of the job, on the aggregator's volume.
    """

    def read() -> Iterator[Sample]:
        labels = (job.metadata.namespace, job.metadata.name)
        yield Sample(DURATION, (*labels, job.spec.method.name), _durations(service))
        yield from _open_round(labels, service)
        yield from _silos(labels, service, status)
        # All from the start: of a counter that begins with 1, Prometheus sees no increase.
        for reason in STATUS:
            yield Sample(REJECTED_UPDATES, (*labels, reason), service.refused[reason])
        yield Sample(DAMAGED_UPDATES, labels, service.engine.damaged)
        yield from VOLUME.read(labels, directory)

    return Exposition("aggregator", DECLARED_SERIES, read)


def _durations(service: AggregatorService) -> Distribution:
    found = Distribution(DURATION.bounds)
    for line in service.engine.history():
        found.add(line["seconds"])
    return found


def _open_round(labels: tuple[str, str], service: AggregatorService) -> Iterator[Sample]:
    current = service.engine.current_exchange
    if current is None:
        return
    found = current.round
    counts = {
        "answered": len(found.answered),
        "awaited": len(found.awaited_silos),
        "failed": len(found.failed),
    }
    for state, count in counts.items():
        yield Sample(SILOS, (*labels, state), count)
    yield Sample(QUORUM, labels, found.quorum)
    yield Sample(ELAPSED_TIME, labels, found.elapsed)
    yield Sample(DEADLINE, labels, found.deadline)


def _silos(labels: tuple[str, str], service: AggregatorService, status: StatusSource) -> Iterator[Sample]:
    current, now = service.engine.current_exchange, time.time() - time.monotonic()
    hindrances = service.hindrances()
    awaited = current.round.awaited_silos if current and not service.engine.ended else ()
    for reference, account in status.accounts().items():
        silo = (*labels, reference.rpartition("/")[2])
        yield Sample(AWAITED_SILO, silo, reference in awaited)
        for state in GuardState:
            yield Sample(HINDRANCE, (*silo, state), hindrances.get(reference) == state)
        for result in OUTCOMES:
            yield Sample(UPDATES, (*silo, result), account.rounds[result])
        if reference in service.last_seen:
            yield Sample(REPORT, silo, now + service.last_seen[reference])
        yield Sample(BYTES, (*silo, "received"), account.sent)
        yield Sample(BYTES, (*silo, "sent"), service.served[reference])
