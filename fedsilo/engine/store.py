"""The aggregator's directory: the last complete state, the open round, and nothing half-written.

    job.json                 whose directory this is
    state.json               exchanges completed, the method's state, the record of the round so far
    blobs/<sha256>           trees of tensors, named by their content
    open/<exchange>/         the open exchange: accepted updates, failures, serving time
    history.jsonl            one line per completed round

`state.json` is the only commit point: it names the blobs that count and how much of the history does, so that
whatever a crash left beyond it is dropped when the directory is opened again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsilo.durable import append_durably, read_json, write_json
from fedsilo.errors import WorkdirConflict
from fedsilo.methods.state import State


@dataclass(frozen=True)
class JobIdentity:
    """Which job this is.

    :param uid: unique for each creation of the job.
    :param silos: references `namespace/name`, in the job's order.
    """

    uid: str
    name: str
    spec_digest: str
    silos: tuple[str, ...]


@dataclass(frozen=True)
class JobProgress:
    """How far a job has come.

    :param position: exchanges completed.
    :param record: what is known of the current round, if it takes more than one exchange.
    """

    position: int
    state: State
    record: dict[str, Any] = field(default_factory=dict)


class JobStore:
    """Durable reads and writes of one job's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = directory / "blobs"
        self._open = directory / "open"
        self._history = directory / "history.jsonl"
        self._committed = 0  # bytes of the history that `state.json` vouches for
        self._lines: list[dict[str, Any]] = []

    def claim(self, job: str, digest: str) -> None:
        """Make the directory this job's, or check that it is.

        :raises WorkdirConflict: when it belongs to another job or another specification.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.blobs.mkdir(exist_ok=True)
        self._open.mkdir(exist_ok=True)
        for path in self.directory.glob(".*.tmp"):  # a crash's unfinished files
            path.unlink()
        identity = {"job": job, "specDigest": digest}
        path = self.directory / "job.json"
        found = read_json(path)
        if found is None:
            write_json(path, identity)
        elif found != identity:
            raise WorkdirConflict(
                f"{self.directory}: belongs to job {found['job']} with specification {found['specDigest'][:12]}, "
                f"not to job {job} with {digest[:12]}; use an empty directory"
            )

    def load(self) -> JobProgress | None:
        """The last complete state, with the history cut back to it; None before the first."""
        document = read_json(self.directory / "state.json")
        self._committed = document["historyBytes"] if document else 0
        self._truncate_history()
        if document is None:
            return None
        if self._history.exists():
            self._lines = [
                json.loads(line) for line in self._history.read_text(encoding="utf-8").splitlines()
            ]
        return JobProgress(
            document["position"], State.from_json(document["state"], self.blobs), document["record"]
        )

    def commit(self, progress: JobProgress, line: dict[str, Any] | None) -> JobProgress:
        """Store everything new, then move the commit point; the completed round's line goes into the history.

        :raises OSError: when the disk is full; the same can be committed again.
        """
        stored = JobProgress(progress.position, progress.state.store(self.blobs), progress.record)
        self._truncate_history()
        if line is not None:
            append_durably(self._history, json.dumps(line, sort_keys=True))
        length = self._history.stat().st_size if self._history.exists() else 0
        document = {
            "position": stored.position,
            "state": stored.state.to_json(),
            "record": stored.record,
            "historyBytes": length,
        }
        write_json(self.directory / "state.json", document)
        self._committed = length
        if line is not None:
            self._lines.append(line)
        return stored

    def history(self) -> list[dict[str, Any]]:
        """Lines of the completed rounds, in order; not to be changed."""
        return self._lines

    def exchange(self, name: str) -> Path:
        """Directory of the open exchange."""
        path = self._open / name
        path.mkdir(exist_ok=True)
        return path

    def sweep(self, keep: set[str], exchange: str | None) -> None:
        """Drop closed exchanges, and blobs that neither the state nor an open task refers to."""
        for path in self._open.iterdir():
            if path.name != exchange:
                shutil.rmtree(path)
        for path in self.blobs.iterdir():
            if path.name not in keep:
                path.unlink()

    def _truncate_history(self) -> None:
        """Drop lines beyond the commit point, which a failed try has left."""
        if self._history.exists() and self._history.stat().st_size > self._committed:
            with self._history.open("r+b") as file:
                file.truncate(self._committed)
