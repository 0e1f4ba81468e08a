"""What the aggregator says of itself: one document, published whenever it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedsilo.durable import write_json
from fedsilo.engine.federation import Federation


class StatusSink(Protocol):
    """Where the status goes: a file on one machine, the job's status on a cluster."""

    def publish(self, status: Mapping[str, Any]) -> None:
        """Make the status known."""


@dataclass
class StatusFile:
    """A JSON file, replaced whole and only when the content changed."""

    path: Path
    last: Mapping[str, Any] | None = None

    def publish(self, status: Mapping[str, Any]) -> None:
        """Write the status; a full disk is no reason to stop."""
        if status != self.last:
            try:
                write_json(self.path, status)
            except OSError:
                return
            self.last = status


def status_of(federation: Federation, refused: Mapping[str, int], message: str) -> dict[str, Any]:
    """State of the job, its rounds and its silos, as plain values."""
    history = federation.history()
    current = federation.current
    failure = federation.failure
    phase = "Failed" if failure else "Succeeded" if federation.result else "Running"
    return {
        "phase": phase,
        "reason": failure.reason if failure else phase,
        "message": str(failure) if failure else message,
        "round": len(history),
        "rounds": federation.rounds,
        "step": current.exchange.phase.name if current and not failure else None,
        "deadlineSeconds": round(current.round.deadline - current.round.elapsed) if current else None,
        "metrics": next((line["metrics"] for line in reversed(history) if "metrics" in line), {}),
        "training": next((line["training"] for line in reversed(history) if "training" in line), {}),
        "silos": [_silo(federation, history, silo) for silo in federation.identity.silos],
        "refused": dict(refused),
        "model": {"path": federation.result.path.name, "sha256": federation.result.sha256}
        if federation.result
        else None,
    }


def _silo(federation: Federation, history: list[dict[str, Any]], silo: str) -> dict[str, Any]:
    last = next((line for line in reversed(history) if silo in line.get("samples", {})), None)
    return {
        "name": silo.rpartition("/")[2],
        "namespace": silo.rpartition("/")[0],
        "state": _silo_state(federation, silo),
        "lastRound": last["round"] if last else 0,
        "samples": last["samples"][silo] if last else None,
        "bytes": sum(line["bytes"].get(silo, 0) for line in history),
        "message": federation.current.round.failed.get(silo, "") if federation.current else "",
    }


def _silo_state(federation: Federation, silo: str) -> str:
    current = federation.current
    if current is None:
        return "Finished"
    if silo in current.round.failed:
        return "Failed"
    if silo in current.round.answered:
        return "Reported"
    return "Awaited" if silo in current.round.silos else "Idle"


def failed_status(reason: str, message: str) -> dict[str, Any]:
    """Status of an aggregator that could not begin."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "silos": [],
        "metrics": {},
        "model": None,
    }
