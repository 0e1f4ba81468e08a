"""A local run as a cluster would show it: a FederatedJob with status and conditions, Events, receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.loading import JobManifest
from fedsilo.api.timestamps import timestamp
from fedsilo.dashboard.scene import Receipt
from fedsilo.engine.record import curve, receipts
from fedsilo.local.progress import Progress

SAME = (
    "round",
    "rounds",
    "step",
    "roundStartTime",
    "roundDeadline",
    "metrics",
    "training",
    "parameters",
    "refused",
)
"""Fields that the aggregator's own status and that of a FederatedJob have in common."""

PHASES = {"Queued": "Pending", "Succeeded": "Complete", "Stopped": "Suspended"}
"""Word of a run -> that of a cluster, where they differ."""

QUEUED: Mapping[str, Any] = {
    "phase": "Queued",
    "reason": "Queued",
    "message": "It begins when the jobs before it have ended.",
    "silos": [],
}


class Shown:
    """One job of a run, brought up to date from its progress.

    :param now: the time of day.
    """

    def __init__(
        self, federation: JobManifest, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.federation = federation
        self.receipts: list[Receipt] = []
        self.events: list[dict[str, Any]] = []
        self._now = now
        self._created = self._timestamp()
        self._since: dict[tuple[str, str], str] = {}
        self._seen: tuple[Any, ...] = ()
        self._rounds = self._notes = 0
        self.job = self._job(QUEUED, ())

    def update(self, progress: Progress) -> bool:
        """Take in what is new; whether anything is."""
        seen = (progress.status, len(progress.rounds), len(progress.notes))
        if seen == self._seen:
            return False
        self._seen = seen
        self._read(progress)
        starts = {"message": progress.starting} if progress.status["phase"] == "Starting" else {}
        self.job = self._job({**progress.status, **starts}, progress.rounds)
        return True

    def end(self, progress: Progress, stopped: bool) -> None:
        """Take in how it ended, which the aggregator may not have lived to say."""
        self._read(progress)
        status = dict(progress.status)
        if stopped:
            status |= {"phase": "Stopped", "reason": "Stopped", "message": "The run was interrupted."}
        elif status["phase"] not in ("Succeeded", "Failed"):
            status |= {key: progress.outcome(0)[key] for key in ("phase", "reason", "message")}
        over = {"step": None, "roundStartTime": None, "roundDeadline": None}
        self.job = self._job(status | over, progress.rounds)

    def _read(self, progress: Progress) -> None:
        for line in progress.rounds[self._rounds :]:
            self.receipts += [
                Receipt(line["round"], phase, silo, digest) for silo, phase, digest in receipts(line)
            ]
            for silo, why in line["failed"].items():
                self._tell("SiloFailed", f"Round {line['round']}: {silo} failed: {why}")
            if line["missing"]:
                self._tell(
                    "RoundClosed", f"Round {line['round']} closed without {', '.join(line['missing'])}."
                )
        for note in progress.notes[self._notes :]:
            self._tell("ProcessEnded", note)
        self._rounds, self._notes = len(progress.rounds), len(progress.notes)

    def _tell(self, reason: str, message: str) -> None:
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

    def _job(self, status: Mapping[str, Any], history: Any) -> dict[str, Any]:
        job, phase = self.federation.job, status["phase"]
        if phase != "Queued":
            self._since.setdefault(("started", ""), self._timestamp())
        model = status.get("model")
        content = {name: status.get(name) for name in SAME} | {
            "phase": PHASES.get(phase, phase),
            "startTime": self._since.get(("started", "")),
            "conditions": list(self._conditions(status)),
            "curve": curve(history),
            "model": {key: model[key] for key in ("path", "sha256")} if model else None,
            "silos": [_entry(silo) for silo in status["silos"]]
            or [
                {
                    "namespace": silo.metadata.namespace,
                    "name": silo.metadata.name,
                    "phase": PHASES.get(phase, phase),
                }
                for silo in self.federation.silos
            ],
        }
        if phase in ("Succeeded", "Failed"):
            content["completionTime"] = self._first(PHASES.get(phase, phase), "True")
        return {
            "metadata": {
                "namespace": job.metadata.namespace,
                "name": job.metadata.name,
                "uid": str(job),
                "creationTimestamp": self._created,
            },
            "spec": job.spec.model_dump(by_alias=True, mode="json", exclude_none=True),
            "status": {name: value for name, value in content.items() if value is not None},
        }

    def _conditions(self, status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        phase = status["phase"]
        yield self._condition("Accepted", "True", "Accepted", "")
        if phase in ("Succeeded", "Failed"):
            yield self._condition(PHASES.get(phase, phase), "True", status["reason"], status["message"])
        elif phase == "Stopped":
            yield self._condition("Suspended", "True", status["reason"], status["message"])
        else:
            runs = "True" if phase == "Running" else "False"
            yield self._condition("Running", runs, status["reason"], status["message"])

    def _condition(self, name: str, status: str, reason: str, message: str) -> dict[str, Any]:
        since = self._first(name, status)
        return {
            "type": name,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }

    def _first(self, name: str, status: str) -> str:
        """When a condition was first seen as it is."""
        return self._since.setdefault((name, status), self._timestamp())

    def _timestamp(self) -> str:
        return timestamp(self._now())


def _entry(silo: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        key: silo.get(key)
        for key in ("namespace", "name", "state", "lastRound", "samples", "update", "message")
    }
    return fields | {"bytesSent": silo.get("bytes")}
