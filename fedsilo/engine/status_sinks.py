"""Where a job's status goes: a file on one machine, the job's status on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedsilo.api.conditions import ENDS
from fedsilo.engine.status import EngineStatus
from fedsilo.files.json_files import write_json, write_json_visibly


class StatusSink(Protocol):
    """Somewhere that a status is published."""

    def publish(self, status: EngineStatus) -> None:
        """Make the status known."""


@dataclass
class StatusFile:
    """A JSON file, replaced whole and only when the content changed.

    Before the job's end nothing waits for the disk: what a power cut damages, the next process writes anew.
    """

    path: Path
    last: EngineStatus | None = None

    def publish(self, status: EngineStatus) -> None:
        """Write the status to the file; a full disk is no reason to stop."""
        if status != self.last:
            write = write_json if status.phase in ENDS else write_json_visibly
            try:
                write(self.path, status.document())
            except OSError:
                return
            self.last = status


@dataclass(frozen=True)
class CombinedStatusSink:
    """Several places at once."""

    sinks: Sequence[StatusSink]

    def publish(self, status: EngineStatus) -> None:
        """Make the status known in each."""
        for sink in self.sinks:
            sink.publish(status)
