"""What has left a silo for a job, read from its verified audit log: the institution's own receipts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsilo.api.receipts import MAX_LATEST
from fedsilo.errors import ManifestInvalid
from fedsilo.files.json_files import read_document
from fedsilo.silo.audit_chain import FILE, GENESIS, AuditBroken, content_of, verified_lines, whole_lines
from fedsilo.silo.volume import Volume

SILOS = "silos"
"""Where the directory of a run has the volumes of its silos."""

AGENTS, VOLUME = "agents", "volume"
"""Where the directory of a silo on a machine of its own has them, by the SiloAgent's uid."""

RECORD = "record.json"
"""What such a silo knows of the job, beside the volume."""

ACCEPTED, UNDER_WAY = "accepted", "sent, not acknowledged"
"""What became of an update, unless it was refused: then the code of the refusal."""

MAX_STATED_BYTES = 2048
"""Bytes of what is stated about receipts, as JSON: a container can leave 4,096, and why it ended is to fit as well."""


@dataclass
class DepartureReceipt:
    """One update that was signed to leave; signed again after a restart, the same bytes are still one.

    :ivar time: when it was signed first (RFC 3339).
    :ivar kinds: payload kind -> number of its blocks and their bytes.
    :ivar bytes: of the whole file.
    :ivar digest: SHA-256 of the file, which the aggregator's `model.json` names.
    :ivar outcome: `ACCEPTED_CONDITION`, `UNDER_WAY`, or the code with which the aggregator refused it.
    """

    time: str
    round: int
    phase: str
    step: str
    task: str
    kinds: dict[str, dict[str, int]]
    bytes: int
    samples: int
    digest: str
    outcome: str = UNDER_WAY

    @property
    def blocks(self) -> int:
        """Number of tensors in the update."""
        return sum(count["blocks"] for count in self.kinds.values())


@dataclass
class Receipts:
    """What has left one silo.

    :ivar silo: name of the silo's directory, or of the silo where that is on record.
    :ivar job: `namespace/name`, where that is on record.
    :ivar lines: of the audit log.
    :ivar hash: digest of the last of them: whoever keeps it elsewhere notices when the end is cut off.
    :ivar bytes: of all updates.
    """

    silo: str
    lines: int = 0
    hash: str = GENESIS
    bytes: int = 0
    by_digest: dict[str, DepartureReceipt] = field(default_factory=dict)
    job: str | None = None

    @property
    def departures(self) -> list[DepartureReceipt]:
        """One for each update, in the order in which they were signed."""
        return list(self.by_digest.values())

    def take(self, line: Mapping[str, Any], digest: str) -> None:
        """Take the next line of the log.

        :param digest: of the line.
        :raises KeyError: or TypeError, ValueError, AttributeError, OverflowError, for a line that no guard wrote.
        """
        self.lines, self.hash = self.lines + 1, digest
        match line["event"]:
            case "departure":
                if (update := str(line["digest"])) not in self.by_digest:
                    receipt = self.by_digest[update] = _receipt(line)
                    self.bytes += receipt.bytes
            case "acknowledged":
                if line["digest"] in self.by_digest:
                    self.by_digest[line["digest"]].outcome = ACCEPTED
            case "not-accepted":
                for receipt in self.by_digest.values():
                    if receipt.task == line["task"] and receipt.outcome == UNDER_WAY:
                        receipt.outcome = str(line["code"])


def volumes(directory: Path) -> list[Path]:
    """The volumes in the directory of a silo or a run: one for each silo, or for each job of a silo of its own.

    :raises ManifestInvalid: when it is neither.
    """
    if _log(directory).exists():
        return [directory]
    parts = [*directory.glob(f"{SILOS}/*"), *directory.glob(f"{AGENTS}/*/{VOLUME}")]
    found = [path for path in sorted(parts) if _log(path).exists()]
    if not found and not (directory / AGENTS).is_dir():
        raise ManifestInvalid(
            f"{directory}: there is neither {_log(Path())} nor {SILOS}/<name>/{_log(Path())}; name a silo's directory, "
            "its volume or the directory of a run of processes"
        )
    return found


def receipts_of(volume: Path) -> Receipts:
    """The receipts in a silo's volume. A last line that is not whole counts as little as for the guard.

    :raises AuditBroken: when the chain of the log does not hold, or a line is not one of a guard.
    """
    path = _log(volume)
    content = content_of(path)
    place = volume.resolve()
    found = Receipts(place.name)
    if place.name == VOLUME:
        found.silo, found.job = _on_record(place.parent)
    _take_all(found, path, content)
    return found


class GrowingReceipts:
    """The receipts in a silo's volume whose log grows: each line is read and checked once.

    Who changes a line after that is found by whoever reads the whole log: each guard as it starts, and `receipts_of`.

    :param volume: the volume; its log need not be there yet.
    """

    def __init__(self, volume: Path) -> None:
        self._path = _log(volume)
        self._file, self._read = 0, 0
        self._found = Receipts(volume.name)

    def read(self) -> Receipts:
        """The receipts of the log as it is now.

        :raises AuditBroken: as `receipts_of`; the next time all of it is read again.
        """
        plain = self._path.is_file() and not self._path.is_symlink()
        now = self._path.stat() if plain else None
        if now is None or now.st_ino != self._file or now.st_size < self._read:
            self._file, self._read, self._found = (
                0 if now is None else now.st_ino,
                0,
                Receipts(self._found.silo),
            )
        content = content_of(self._path, self._read)
        try:
            self._read += _take_all(self._found, self._path, content)
        except AuditBroken:
            self._file = 0
            raise
        return self._found


def _take_all(found: Receipts, path: Path, content: bytes) -> int:
    """Take the whole lines that follow upon those taken; their length."""
    whole = whole_lines(content)
    for line, digest in verified_lines(path, whole, found.lines, found.hash):
        try:
            found.take(line, digest)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise AuditBroken(
                f"{path}: line {found.lines} is not as a guard writes it; find out who did"
            ) from None
    return len(whole)


def _log(volume: Path) -> Path:
    return Volume(volume).audit / FILE


def _on_record(part: Path) -> tuple[str, str | None]:
    """Silo and job of a part in a job; its identity where the record says nothing."""
    try:
        spec = read_document(part / RECORD)["spec"]
        return str(spec["silo"]["name"]), f"{spec['job']['namespace']}/{spec['job']['name']}"
    except (OSError, ValueError, KeyError, TypeError):
        return part.name, None


def _receipt(line: Mapping[str, Any]) -> DepartureReceipt:
    kinds = {
        str(kind): {"blocks": int(count["blocks"]), "bytes": int(count["bytes"])}
        for kind, count in line["kinds"].items()
    }
    return DepartureReceipt(
        time=str(line["time"]),
        round=int(line["round"]),
        phase=str(line.get("phase", line["step"])),
        step=str(line["step"]),
        task=str(line["task"]),
        kinds=kinds,
        bytes=int(line["bytes"]),
        samples=int(line["samples"]),
        digest=str(line["digest"]),
    )


def as_document(found: Receipts) -> dict[str, Any]:
    """The receipts of a silo as plain JSON values."""
    return {
        "silo": found.silo,
        **({} if found.job is None else {"job": found.job}),
        "auditLines": found.lines,
        "auditHash": found.hash,
        "bytes": found.bytes,
        "departures": [vars(receipt) for receipt in found.departures],
    }


def receipts_document(found: Receipts) -> dict[str, Any]:
    """The receipts as a SiloAgent's status has them: as many of the latest as fit."""
    latest = [_receipt_document(receipt) for receipt in found.departures[-MAX_LATEST:]]
    summary: dict[str, Any] = {
        "auditLines": found.lines,
        "auditHash": found.hash,
        "updates": len(found.by_digest),
        "bytes": found.bytes,
        "latest": latest,
    }
    while latest and len(json.dumps(summary)) > MAX_STATED_BYTES:
        del latest[0]
    return summary


def _receipt_document(receipt: DepartureReceipt) -> dict[str, Any]:
    return {
        "round": receipt.round,
        "phase": receipt.phase,
        "kinds": [{"kind": kind, **count} for kind, count in receipt.kinds.items()],
        "bytes": receipt.bytes,
        "digest": receipt.digest,
        "outcome": receipt.outcome,
    }
