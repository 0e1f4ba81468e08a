"""The aggregator's directory: the last complete state, the open round, and nothing half-written.

    job.json                 whose directory this is
    state.json               exchanges completed, the method's state, the record of the round so far
    blobs/<sha256>           trees of tensors, named by their content
    open/<exchange>/         the open exchange: accepted updates, failures, serving time
    history.jsonl            one line per completed round

`state.json` is the only commit point: it names the blobs that count and how much of the history does, so that
whatever a crash left beyond it is dropped when the directory is opened again. Before anything is,
all that it refers to must be found as it was written: `state.json` by the digest in itself, the history and the blobs
by those in `state.json`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsilo.durable import (
    RESTORE,
    append_durably,
    make_directory,
    read_with_digest,
    remove_tree,
    require_content,
    truncate,
    unlink,
    write_with_digest,
)
from fedsilo.errors import FileDamaged, WorkdirConflict
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
        self._state = directory / "state.json"
        self._open = directory / "open"
        self._history = directory / "history.jsonl"
        self._committed = 0  # bytes of the history that `state.json` vouches for
        self._vouched = hashlib.sha256()  # over these bytes
        self._lines: list[dict[str, Any]] = []

    def claim(self, job: str, digest: str) -> None:
        """Make the directory this job's, or check that it is.

        :raises WorkdirConflict: when it belongs to another job or another specification.
        :raises FileDamaged: when the file that says so is damaged, or missing beside a state.
        """
        for directory in (self.blobs, self._open):
            make_directory(directory)
        for path in self.directory.glob(".*.tmp"):  # a crash's unfinished files
            unlink(path)
        identity = {"job": job, "specDigest": digest}
        path = self.directory / "job.json"
        found = read_with_digest(path)
        if found is None:
            if self._state.exists():
                raise FileDamaged(f"{path}: is missing, although {self._state.name} is there; {RESTORE}")
            write_with_digest(path, identity)
        elif found != identity:
            raise WorkdirConflict(
                f"{self.directory}: belongs to job {found['job']} with specification {found['specDigest'][:12]}, "
                f"not to job {job} with {digest[:12]}; use an empty directory"
            )

    def load(self) -> JobProgress | None:
        """The last complete state, with the history cut back to it; None before the first.

        Blobs that the state does not refer to are dropped: what the open exchange hands out is computed again, and
        must not be taken from a file that nobody has checked.

        :raises FileDamaged: when the state, its blobs or the history are missing or not as they were written;
            nothing was dropped then.
        """
        document = read_with_digest(self._state)
        if document is None:
            self._require_unused()
            self._drop_blobs_except(set())
            return None
        content = self._committed_history(document["historyBytes"], document["historySha256"])
        state = State.from_json(document["state"], self.blobs)
        digests = {ref.digest for ref in state.refs().values()}
        for digest in sorted(digests):
            require_content(self.blobs / digest, digest)
        self._committed, self._vouched = len(content), hashlib.sha256(content)
        self._lines = [json.loads(line) for line in content.splitlines()]
        self._truncate_history()
        self._drop_blobs_except(digests)
        return JobProgress(document["position"], state, document["record"])

    def commit(self, progress: JobProgress, line: dict[str, Any] | None) -> JobProgress:
        """Store everything new, then move the commit point; the completed round's line goes into the history.

        :raises OSError: when the disk is full; the same can be committed again.
        """
        stored = JobProgress(progress.position, progress.state.store(self.blobs), progress.record)
        self._truncate_history()
        committed, vouched = self._committed, self._vouched.copy()
        if line is not None:
            text = json.dumps(line, sort_keys=True, allow_nan=False)
            append_durably(self._history, text)
            added = f"{text}\n".encode()
            committed += len(added)
            vouched.update(added)
        document = {
            "position": stored.position,
            "state": stored.state.to_json(),
            "record": stored.record,
            "historyBytes": committed,
            "historySha256": vouched.hexdigest(),
        }
        write_with_digest(self._state, document)
        self._committed, self._vouched = committed, vouched
        if line is not None:
            self._lines.append(line)
        return stored

    def history(self) -> list[dict[str, Any]]:
        """Lines of the completed rounds, in order; not to be changed."""
        return self._lines

    def exchange(self, name: str) -> Path:
        """Directory of the open exchange."""
        path = self._open / name
        make_directory(path)
        return path

    def sweep(self, keep: set[str], exchange: str | None) -> None:
        """Drop closed exchanges, and blobs that neither the state nor an open task refers to."""
        for path in self._open.iterdir():
            if path.name != exchange:
                remove_tree(path)
        self._drop_blobs_except(keep)

    def _truncate_history(self) -> None:
        """Drop lines beyond the commit point, which a failed try has left."""
        if self._history.exists() and self._history.stat().st_size > self._committed:
            truncate(self._history, self._committed)

    def _require_unused(self) -> None:
        """Check that a directory without a state has nothing that only follows one.

        :raises FileDamaged: naming what is there.
        """
        for path in (self._history, *sorted(self._open.iterdir())):
            if path.exists():
                raise FileDamaged(f"{self._state}: is missing, although {path.name} is there; {RESTORE}")

    def _committed_history(self, length: int, sha256: str) -> bytes:
        """The history as far as the state vouches for it."""
        content = self._history.read_bytes()[:length] if self._history.exists() else b""
        if len(content) < length:
            raise FileDamaged(
                f"{self._history}: has {len(content)} of the {length} bytes that {self._state.name} counts; {RESTORE}"
            )
        if hashlib.sha256(content).hexdigest() != sha256:
            raise FileDamaged(
                f"{self._history}: its first {length} bytes are not those that {self._state.name} counts; {RESTORE}"
            )
        return content

    def _drop_blobs_except(self, keep: set[str]) -> None:
        for path in self.blobs.iterdir():
            if path.name not in keep:
                unlink(path)
