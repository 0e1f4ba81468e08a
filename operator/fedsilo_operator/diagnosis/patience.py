"""How long trouble of a pod lasts before anybody is told: much of what a kubelet says at first passes by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.observed import Object
from fedsilo.api.timestamps import parse_timestamp

ROOM_PATIENCE = timedelta(seconds=4)
"""Time for room that another pod is about to leave, on a node or in a quota."""

PATIENCE = timedelta(seconds=10)
"""Time for a Secret or ConfigMap that is made with its pod, a volume that is being attached, and a node's network: a
kubelet tries a mount five times meanwhile."""

PULL_PATIENCE = timedelta(seconds=30)
"""Time for a second try of an image: a kubelet waits 10 s after the first, and comes to it when it looks at the pod."""


@dataclass(frozen=True)
class PendingDiagnosis:
    """What keeps a pod pending, and may yet pass by itself.

    :param first_said: when scheduler, kubelet or Job controller said so for the first time.
    :param patience: time in which it may pass; none where waiting cannot help.
    """

    diagnosis: Diagnosis
    first_said: datetime
    patience: timedelta

    @classmethod
    def of(cls, diagnosis: Diagnosis, first_said: str, patience: timedelta = PATIENCE) -> PendingDiagnosis:
        """The diagnosis of what was first said at this time, as Kubernetes writes it."""
        return cls(diagnosis, parse_timestamp(first_said), patience)

    def seconds_left(self, now: datetime) -> float:
        """Seconds until it has lasted so long that somebody is told."""
        if self.diagnosis.permanent:
            return 0.0
        return max(0.0, (self.first_said + self.patience - now).total_seconds())


def first_seen(events: Iterable[Object]) -> str:
    """When the first of these Events was recorded first; empty without one."""
    return min((str(event.get("firstTimestamp") or last_seen(event)) for event in events), default="")


def last_seen(event: Object) -> str:
    """When an Event was recorded last; these texts sort as times do."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
