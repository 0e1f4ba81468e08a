"""A local run as a cluster would show it: a FederatedJob with status and conditions, Events, receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.common import Condition
from fedsilo.api.conditions import ENDS, ConditionType, JobPhase
from fedsilo.api.loading import JobManifest
from fedsilo.api.status import condition_of
from fedsilo.api.timestamps import timestamp
from fedsilo.dashboard.snapshot import Receipt
from fedsilo.engine.record import receipts
from fedsilo.local.progress import RunProgress, stated_status

ROUND_FIELDS = ("step", "roundStartTime", "roundDeadline")
"""Fields of a status that describe the open round."""


class JobView:
    """One job of a run, updated from its progress.

    :param now: the time of day.
    """

    def __init__(
        self, manifest: JobManifest, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.manifest = manifest
        self.receipts: list[Receipt] = []
        self.events: list[dict[str, Any]] = []
        self._now = now
        self._created = self._timestamp()
        self._accepted = condition_of(ConditionType.ACCEPTED, "True", "Accepted", "", self._created)
        self._started: str | None = None
        self._seen: tuple[Any, ...] = ()
        self._rounds = self._notes = 0
        waits = "It begins when the jobs before it have ended."
        queued = condition_of(ConditionType.RUNNING, "False", "Queued", waits, self._created)
        self.job = self._job(stated_status(JobPhase.PENDING, queued))

    def update(self, progress: RunProgress) -> bool:
        """Take over what is new; whether anything is."""
        seen = (progress.status, len(progress.rounds), len(progress.notes))
        if seen == self._seen:
            return False
        self._seen = seen
        self._started = self._started or self._timestamp()
        self._read(progress)
        self.job = self._job(progress.status)
        return True

    def end(self, progress: RunProgress, stopped: bool) -> None:
        """Take over how it ended, which the aggregator may not have been able to report."""
        self._started = self._started or self._timestamp()
        self._read(progress)
        status = {name: value for name, value in progress.status.items() if name not in ROUND_FIELDS}
        if stopped:
            message = "The run was interrupted."
            condition = condition_of(ConditionType.SUSPENDED, "True", "Stopped", message, self._timestamp())
            status |= _summary(JobPhase.SUSPENDED, condition)
        elif status["phase"] not in ENDS:
            condition = condition_of(
                ConditionType.FAILED, "True", **progress.failure(), since=self._timestamp()
            )
            status |= _summary(JobPhase.FAILED, condition)
        self.job = self._job(status)

    def _read(self, progress: RunProgress) -> None:
        for line in progress.rounds[self._rounds :]:
            self.receipts += [
                Receipt(line["round"], phase, silo, digest) for silo, phase, digest in receipts(line)
            ]
            for silo, why in line["failed"].items():
                self._add_event("SiloFailed", f"Round {line['round']}: {silo} failed: {why}")
            if line["missing"]:
                self._add_event(
                    "RoundClosed", f"Round {line['round']} closed without {', '.join(line['missing'])}."
                )
        for note in progress.notes[self._notes :]:
            self._add_event("ProcessEnded", note)
        self._rounds, self._notes = len(progress.rounds), len(progress.notes)

    def _add_event(self, reason: str, message: str) -> None:
        metadata = self.job["metadata"]
        self.events.append(
            {
                "metadata": {"name": f"{metadata['name']}.{len(self.events)}"},
                "involvedObject": {
                    "kind": "FederatedJob",
                    **{key: metadata[key] for key in ("namespace", "name", "uid")},
                },
                "type": "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": self._timestamp(),
            }
        )

    def _job(self, status: Mapping[str, Any]) -> dict[str, Any]:
        job, phase = self.manifest.job, status["phase"]
        (condition,) = status["conditions"]
        times = {
            "startTime": self._started,
            "completionTime": condition["lastTransitionTime"] if phase in ENDS else None,
        }
        return {
            "metadata": {
                "namespace": job.metadata.namespace,
                "name": job.metadata.name,
                "uid": str(job),
                "creationTimestamp": self._created,
            },
            "spec": job.spec.model_dump(by_alias=True, mode="json", exclude_none=True),
            "status": {
                **status,
                **{name: time for name, time in times.items() if time is not None},
                "conditions": [self._accepted.model_dump(by_alias=True, exclude_none=True), condition],
                "silos": status["silos"] or self._silos(phase),
            },
        }

    def _silos(self, phase: str) -> list[dict[str, str]]:
        """The silos before the aggregator's first status."""
        return [
            {"namespace": silo.metadata.namespace, "name": silo.metadata.name, "phase": phase}
            for silo in self.manifest.silos
        ]

    def _timestamp(self) -> str:
        return timestamp(self._now())


def _summary(phase: JobPhase, condition: Condition) -> dict[str, Any]:
    """Phase and condition of a status."""
    return {name: stated_status(phase, condition)[name] for name in ("phase", "conditions")}
