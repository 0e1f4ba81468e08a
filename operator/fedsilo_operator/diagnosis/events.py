"""What only an Event explains: Jobs and pods that do not run and whose own status does not say why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import alive, running
from fedsilo_operator.objects import EVENT, ref_of
from fedsilo_operator.workloads.suspension import is_suspended

MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 5.0, 300.0
"""Time between two checks of something that does not run: nothing watches Events, so none wakes the operator."""


def backoff(made: Iterable[Object], now: datetime) -> float:
    """Seconds until the next check of Jobs and pods that do not run: as long as the newest has been waiting so far.

    Often at first, then rarely, as a kubelet does it with an image that it cannot pull.
    """
    newest = max((obj["metadata"]["creationTimestamp"] for obj in made), default=None)
    age = (now - parse_timestamp(newest)).total_seconds() if newest else 0.0
    return min(MAX_BACKOFF_SECONDS, max(MIN_BACKOFF_SECONDS, age))


def needs_events(job: Object | None, pods: Sequence[Object]) -> Iterator[Object]:
    """A Job without a pod, or a pod that is on a node and does not run: a pod itself says why it is on none.

    :param pods: those that the Job made.
    """
    if job is None or is_suspended(job) or outcome(job, ()) is not None or running(pods):
        return
    if not alive(pods):
        yield job
    yield from (pod for pod in pods if alive([pod]) and pod["spec"].get("nodeName"))


async def events_about(objects: Iterable[Object], cluster: Cluster) -> tuple[Object, ...]:
    """All Events about these objects."""
    listings = [
        await cluster.list(EVENT, namespace=ref_of(obj).namespace, fields=f"involvedObject.uid={uid_of(obj)}")
        for obj in objects
    ]
    return tuple(event for listing in listings for event in listing.items)
