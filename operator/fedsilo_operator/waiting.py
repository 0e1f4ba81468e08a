"""What does not run: when to look at it again, and the Events about it, since some troubles are told nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.conditions import moment
from fedsilo_operator.objects import EVENT, Object, ref_of, uid_of
from fedsilo_operator.pods import alive, ending, running
from fedsilo_operator.workloads.pod import is_suspended

SOONEST, LATEST = 5.0, 300.0
"""Seconds between two looks at something that does not run: Events wake nobody."""


def pause(made: Iterable[Object], now: datetime) -> float:
    """As long again as the newest of these Jobs and pods has been waiting: often at first, then rarely."""
    newest = max((obj["metadata"]["creationTimestamp"] for obj in made), default=None)
    age = (now - moment(newest)).total_seconds() if newest else 0.0
    return min(LATEST, max(SOONEST, age))


def unexplained(job: Object | None, pods: Sequence[Object]) -> Iterator[Object]:
    """A Job without a pod, or a pod that is on a node and does not run: a pod itself says why it is on none.

    :param pods: those that the Job made.
    """
    if job is None or is_suspended(job) or ending(job, ()) is not None or running(pods):
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
