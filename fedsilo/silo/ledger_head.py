"""How far a ledger had come when an update was charged, as audit logs have it, so that a lost end of it is found.

The chain of a ledger holds as well where its last lines are cut off. But each departure that was charged is in the
audit log of its guard, with the number of the ledger's lines and the hash of the last of them: the ledger only grows,
so it must have that line for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedsilo.silo.audit_chain import FILE, AuditBroken, content_of, verified_lines, whole_lines
from fedsilo.silo.receipts import AGENTS, VOLUME
from fedsilo.silo.volume import Volume

FACT = "ledger"
"""What a line of an audit log calls it."""


@dataclass(frozen=True)
class LedgerHead:
    """The last line of a dataset's ledger at a time.

    :param lines: that it had.
    :param hash: of the last of them.
    """

    dataset: str
    lines: int
    hash: str

    def to_dict(self) -> dict[str, Any]:
        """The ledger's length and last hash in the form of an audit log."""
        return {"dataset": self.dataset, "lines": self.lines, "hash": self.hash}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Self | None:
        """The ledger's head in a line of an audit log; None where the line has none."""
        match line.get(FACT):
            case {"dataset": str(dataset), "lines": int(lines), "hash": str(hash)} if lines > 0:
                return cls(dataset, lines, hash)
        return None

    def require_in(self, path: Path, hashes: Sequence[str]) -> None:
        """Check that a ledger still has this line.

        :param path: of the ledger.
        :param hashes: of its lines.
        :raises AuditBroken: when it has not.
        """
        if self.lines <= len(hashes) and hashes[self.lines - 1] == self.hash:
            return
        what = "has lost its end" if self.lines > len(hashes) else "is another one"
        raise AuditBroken(
            f"{path}: {what}: by the audit log of a guard it has had {self.lines} lines, the last with hash "
            f"{self.hash[:12]}, and now it has {len(hashes)}; restore it from a backup, and find out who changed it"
        )


class HeadStore:
    """How far the ledgers of an institution had come, by the audit logs of all its jobs.

    A log is read again only once it has changed.

    :param ledgers: the directory of ledgers; the logs are where a silo's directory, or that of a run, has them.
    """

    def __init__(self, ledgers: Path) -> None:
        self._place = ledgers.parent.parent
        self._known: dict[Path, tuple[object, LedgerHead | None]] = {}

    def of(self, dataset: str) -> tuple[LedgerHead, ...]:
        """The last of each job about a dataset.

        :raises AuditBroken: when an audit log was changed.
        """
        return tuple(head for head in self._heads() if head.dataset == dataset)

    def _heads(self) -> Iterator[LedgerHead]:
        for path in self._logs():
            found = path.lstat()
            basis = found.st_ino, found.st_size, found.st_mtime_ns
            if path not in self._known or self._known[path][0] != basis:
                self._known[path] = basis, _last_head(path)
            if (head := self._known[path][1]) is not None:
                yield head

    def _logs(self) -> list[Path]:
        volumes = [self._place, *self._place.glob(f"{AGENTS}/*/{VOLUME}")]
        return [log for volume in sorted(volumes) if os.path.lexists(log := Volume(volume).audit / FILE)]


def _last_head(path: Path) -> LedgerHead | None:
    head: LedgerHead | None = None
    for line, _ in verified_lines(path, whole_lines(content_of(path))):
        head = LedgerHead.of_line(line) or head
    return head
