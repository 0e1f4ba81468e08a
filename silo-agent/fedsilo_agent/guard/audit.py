"""The hash-chained audit log: every departure and every refusal, one line each.

Each line carries the digest of the line before it and its own, so that no line can be changed, dropped or inserted
without breaking the chain. Rewriting everything after a line, or cutting the end off, leaves a chain that
holds: keep the last digest somewhere else from time to time, as the guard's own log does. A line is on the disk before
what it describes leaves the silo.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsilo.durable import append_durably
from fedsilo.errors import PolicyRefused

log = logging.getLogger("fedsilo.guard")

EVENTS = (
    "signature",
    "departure",
    "acknowledged",
    "not-accepted",
    "refused",
    "task-refused",
    "failed",
    "finished",
)
"""The only events that are ever written."""

GENESIS = "0" * 64


class AuditBroken(PolicyRefused):
    """The audit log was changed; nothing leaves until a person has checked it."""

    reason = "AuditBroken"


class AuditLog:
    """Append-only log in `directory/log.jsonl`.

    :raises AuditBroken: when the chain of an existing log does not hold.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "log.jsonl"
        _cut_torn_line(self.path)
        self._sequence, self._previous = verify(self.path)
        self._lock = threading.Lock()

    def write(self, event: str, **facts: Any) -> None:
        """Append one of `EVENTS` durably; from any thread."""
        with self._lock:
            self._append(event, facts)

    def _append(self, event: str, facts: Mapping[str, Any]) -> None:
        line = {
            "seq": self._sequence,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            **facts,
            "previous": self._previous,
        }
        digest = _digest(line)
        append_durably(self.path, json.dumps({**line, "hash": digest}, sort_keys=True))
        self._sequence += 1
        self._previous = digest
        log.info("audit line %d, %s: %s", line["seq"], event, digest)


def verify(path: Path) -> tuple[int, str]:
    """Check the whole chain; number of lines and digest of the last.

    :raises AuditBroken: naming the first line that does not follow from the one before.
    """
    previous, sequence = GENESIS, 0
    lines = path.read_bytes().splitlines() if path.exists() else []
    for sequence, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            digest = line.pop("hash")
            follows = line["previous"] == previous and line["seq"] == sequence - 1 and digest == _digest(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            follows = False
        if not follows:
            raise AuditBroken(
                f"{path}: line {sequence} does not follow from the line before it; the log was changed"
            )
        previous = digest
    return sequence, previous


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()


def _cut_torn_line(path: Path) -> None:
    """Drop an incomplete last line: a crash cut it off before anything that it covers left."""
    if not path.exists():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end != len(content):
        with path.open("r+b") as file:
            file.truncate(end)
