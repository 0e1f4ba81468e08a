"""What a silo that serves answers at `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from fedsilo.api.timestamps import parse_timestamp
from fedsilo.hub.contact import Contact
from fedsilo.institution.executor import Executor
from fedsilo.metrics import Exposition, Sample, Series
from fedsilo.silo import budget_metrics

SILO = ("silo_namespace", "silo")

HUB_REACHED_SERIES = Series("fedsilo_silo_hub_reached", "gauge", SILO, "1 while the hub is reached, else 0.")
HUB_HEARD_SERIES = Series(
    "fedsilo_silo_hub_heard_timestamp_seconds", "gauge", SILO, "When the hub answered last (Unix time)."
)
JOBS = Series(
    "fedsilo_silo_jobs", "gauge", (*SILO, "phase"), "Jobs that the hub asks this silo for, by phase."
)
WAITING = Series(
    "fedsilo_silo_approval_pending_timestamp_seconds",
    "gauge",
    SILO,
    "Since when the job that has waited longest for a person was asked for (Unix time); None while none waits.",
)

DECLARED_SERIES = (HUB_REACHED_SERIES, HUB_HEARD_SERIES, JOBS, WAITING, *budget_metrics.DECLARED_SERIES)


def exposition(executor: Executor, contact: Callable[[], Contact | None]) -> Exposition:
    """The metrics that a silo's process serves to monitors."""
    silo = (executor.silo.metadata.namespace, executor.silo.metadata.name)

    def read() -> Iterator[Sample]:
        known = contact()
        yield Sample(HUB_REACHED_SERIES, silo, float(known is not None and known.reached))
        if known is not None and known.heard is not None:
            yield Sample(HUB_HEARD_SERIES, silo, known.heard.timestamp())
        phases = Counter(str(status["phase"]) for _, status in executor.statuses().values())
        for phase, count in sorted(phases.items()):
            yield Sample(JOBS, (*silo, phase), count)
        if pending := executor.pending_since():
            yield Sample(WAITING, silo, parse_timestamp(min(pending)).timestamp())
        for budget in executor.privacy_budgets():
            yield from budget_metrics.read(*silo, budget)

    return Exposition("silo", DECLARED_SERIES, read)
