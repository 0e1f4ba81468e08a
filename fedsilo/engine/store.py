"""The aggregator's directory holds the last complete state, the open round, and nothing half-written.

    job.json                 whose directory this is
    state.json               exchanges completed, the method's state, the record of the round so far
    blobs/<digest>           trees of tensors, named by their content
    open/<exchange>/         the open exchange: accepted updates, failures, serving time
    kept/<exchange>/         the same where the job keeps its updates, which stay when the exchange is closed
    history.jsonl            one line per completed round
    provenance.jsonl         one line for the job and one per completed exchange (provenance.py)

`state.json` is the only commit point: it names the blobs that count and how much of the history and of the provenance
does, so that whatever a crash left beyond it is dropped when the directory is opened again. Before anything is,
all that it refers to must be found as it was written: `state.json` by the digest in itself, all others by those in
`state.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsilo.engine.committed_lines import CommittedLines
from fedsilo.errors import FileDamaged, WorkdirConflict
from fedsilo.files.durable import RESTORE, make_own_directory, remove, require_content, sync_directory
from fedsilo.files.json_files import Fields, read_with_digest, write_with_digest
from fedsilo.methods.state import State

STATE_FIELDS: Fields = {
    "position": int,
    "state": dict,
    "record": dict,
    "historyBytes": int,
    "historySha256": str,
    "provenanceBytes": int,
    "provenanceSha256": str,
}


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

    :param position: exchanges that are complete, or were passed over.
    :param record: what is known of the current round, if it takes more than one exchange.
    """

    position: int
    state: State
    record: dict[str, Any] = field(default_factory=dict)


class JobStore:
    """Durable reads and writes of one job's directory.

    :ivar kept: directory of the updates that the job keeps.
    :ivar provenance: the chain so far.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = directory / "blobs"
        self._state = directory / "state.json"
        self._open = directory / "open"
        self.kept = directory / "kept"
        self.provenance = CommittedLines(directory / "provenance.jsonl", self._state.name)
        self._history = CommittedLines(directory / "history.jsonl", self._state.name)
        self._lines: list[dict[str, Any]] = []
        self._swept: set[str] = set()  # kept exchanges that hold nothing but updates

    def claim(self, job: str, digest: str) -> None:
        """Make the directory this job's, or check that it is.

        :raises WorkdirConflict: when it belongs to another job or another specification.
        :raises FileDamaged: when the file that says so is damaged, or missing beside a state.
        """
        for directory in (self.blobs, self._open):
            make_own_directory(directory)
        # An earlier process may have died between a rename and this: what is read here counts from now on.
        sync_directory(self.directory)
        identity = {"job": job, "specDigest": digest}
        path = self.directory / "job.json"
        found = read_with_digest(path, fields={"job": str, "specDigest": str})
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

        :raises FileDamaged: when the state, its blobs, the history or the provenance are missing or not as they were
            written; nothing was dropped then.
        """
        document = read_with_digest(self._state, fields=STATE_FIELDS)
        if document is None:
            self._require_unused()
            self._drop_leftovers(set())
            return None
        lines = list(self._history.load(document["historyBytes"], document["historySha256"]))
        for _ in self.provenance.load(document["provenanceBytes"], document["provenanceSha256"]):
            pass  # its text is needed by nobody who goes on with the job
        state = State.from_json(document["state"], self.blobs)
        digests = {ref.digest for ref in state.refs().values()}
        for digest in sorted(digests):
            require_content(self.blobs / digest, digest)
        self._lines = [json.loads(line) for line in lines]
        self._history.drop_rest()
        self.provenance.drop_rest()
        self._drop_leftovers(digests)
        return JobProgress(document["position"], state, document["record"])

    def commit(
        self, progress: JobProgress, line: dict[str, Any] | None, provenance: Sequence[str] = ()
    ) -> JobProgress:
        """Store everything new, then move the commit point; the completed round's line goes into the history.

        :param provenance: lines of the completed exchange.
        :raises OSError: when the disk is full; the same can be committed again.
        """
        stored = JobProgress(progress.position, progress.state.store(self.blobs), progress.record)
        lines = [] if line is None else [json.dumps(line, sort_keys=True, allow_nan=False)]
        history_bytes, history_sha256 = self._history.append(lines)
        provenance_bytes, provenance_sha256 = self.provenance.append(provenance)
        document = {
            "position": stored.position,
            "state": stored.state.to_json(),
            "record": stored.record,
            "historyBytes": history_bytes,
            "historySha256": history_sha256,
            "provenanceBytes": provenance_bytes,
            "provenanceSha256": provenance_sha256,
        }
        write_with_digest(self._state, document)
        self._history.count(lines)
        self.provenance.count(provenance)
        if line is not None:
            self._lines.append(line)
        return stored

    def history(self) -> list[dict[str, Any]]:
        """Lines of the completed rounds, in order; not to be changed."""
        return self._lines

    def exchange(self, name: str, keep_updates: bool) -> Path:
        """Directory of the open exchange."""
        if keep_updates:
            make_own_directory(self.kept)
        path = (self.kept if keep_updates else self._open) / name
        make_own_directory(path, "remove it: the silos are asked again")
        return path

    def sweep(self, keep: set[str], exchange: str | None) -> None:
        """Drop closed exchanges, of kept ones all but the updates, and blobs that nothing refers to any more.

        :param keep: digests of blobs that the state or an open task refers to.
        :param exchange: name of the open exchange.
        """
        for path in self._open.iterdir():
            if path.name != exchange:
                remove(path)
        for path in self.kept.iterdir() if _is_own(self.kept) else ():
            if path.name != exchange and path.name not in self._swept and _is_own(path):
                self._keep_updates_only(path)
                self._swept.add(path.name)
        self._drop_blobs_except(keep)

    def _keep_updates_only(self, closed: Path) -> None:
        for path in closed.iterdir():
            if path.suffix != ".update":
                remove(path)

    def _require_unused(self) -> None:
        """Check that a directory without a state has nothing that only follows one.

        :raises FileDamaged: naming what is there.
        """
        for path in (self._history.path, self.provenance.path, self.kept, *sorted(self._open.iterdir())):
            if path.exists():
                raise FileDamaged(f"{self._state}: is missing, although {path.name} is there; {RESTORE}")

    def _drop_leftovers(self, keep: set[str]) -> None:
        """Drop what a crash has left: unfinished files, and blobs that nothing counts."""
        for path in (*self.directory.glob(".*.tmp"), *self.directory.glob("*/.*.tmp")):
            remove(path)
        self._drop_blobs_except(keep)

    def _drop_blobs_except(self, keep: set[str]) -> None:
        for path in self.blobs.iterdir():
            if path.name not in keep:
                remove(path)


def _is_own(directory: Path) -> bool:
    return directory.is_dir() and not directory.is_symlink()
