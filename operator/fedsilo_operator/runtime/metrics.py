"""The runtime's own metrics: reconciles, queues, watches and the lease."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.metrics import Sample, Series
from fedsilo_operator.runtime.controller import DURATION_BUCKETS, RESULTS
from fedsilo_operator.runtime.operator import Operator

RECONCILES = Series(
    "fedsilo_reconcile_total",
    "counter",
    ("controller", "result"),
    "Reconciles by result: success, refused (by the API server), retry, defect.",
)
DURATION = Series(
    "fedsilo_reconcile_duration_seconds",
    "histogram",
    ("controller",),
    "Time of one reconcile.",
    DURATION_BUCKETS,
)
# The queues are client-go's, and so are the names.
DEPTH = Series("workqueue_depth", "gauge", ("name",), "Objects that wait for a worker.")
ADDS = Series("workqueue_adds_total", "counter", ("name",), "Objects that began to wait for a worker.")
RETRIES = Series(
    "workqueue_retries_total", "counter", ("name",), "Objects that are to come back after a failure."
)
LONGEST_RUN = Series(
    "workqueue_longest_running_processor_seconds",
    "gauge",
    ("name",),
    "For how long the slowest worker has been busy with its object.",
)
RESTARTS = Series(
    "fedsilo_watch_restarts_total",
    "counter",
    ("resource",),
    "Watches that broke off or had to list again; those that end on time do not count.",
)
LEADER = Series("fedsilo_leader", "gauge", (), "1 in the operator that leads, 0 in those that stand by.")
TRANSITIONS = Series(
    "fedsilo_lease_transitions_total",
    "counter",
    (),
    "How often the operators' Lease has changed hands, as this one read it last.",
)

DECLARED_SERIES = (RECONCILES, DURATION, DEPTH, ADDS, RETRIES, LONGEST_RUN, RESTARTS, LEADER, TRANSITIONS)


def read(operator: Operator) -> Iterator[Sample]:
    """The runtime's metrics as they are now."""
    for controller in operator.controllers:
        name, queue = controller.reconciler.name, controller.queue
        for result in RESULTS:
            yield Sample(RECONCILES, (name, result), controller.results[result])
        yield Sample(DURATION, (name,), controller.durations)
        yield Sample(DEPTH, (name,), len(queue))
        yield Sample(ADDS, (name,), queue.added)
        yield Sample(RETRIES, (name,), queue.retried)
        yield Sample(LONGEST_RUN, (name,), queue.longest_running())
    restarts: dict[str, int] = {}
    for (kind, _), reflector in operator.reflectors.items():
        restarts[kind.plural] = restarts.get(kind.plural, 0) + reflector.restarts
    for resource, count in sorted(restarts.items()):
        yield Sample(RESTARTS, (resource,), count)
    yield Sample(LEADER, (), operator.leading)
    if operator.election is not None:
        yield Sample(TRANSITIONS, (), operator.election.transitions)
