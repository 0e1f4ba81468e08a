"""The chain of an audit log: each line carries the digest of the line before it and its own.

The guard writes it (`fedsilo_agent.guard.audit`); whoever reads a log checks it here first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsilo.durable import read_file
from fedsilo.errors import FileDamaged, PolicyRefused

FILE = "log.jsonl"
"""Name of the log in its directory."""

GENESIS = "0" * 64
"""What the first line has in place of the digest of a line before it."""


class AuditBroken(PolicyRefused):
    """The audit log was changed; nothing leaves until a person has checked it."""

    reason = "AuditBroken"


def content_of(path: Path) -> bytes:
    """Content of a log, nothing where there is none yet.

    :raises AuditBroken: when something else has its name.
    """
    if path.is_symlink():
        raise AuditBroken(f"{path}: is a link, and not the log; find out who made it")
    try:
        return read_file(path, "the log was changed; find out by whom") or b""
    except FileDamaged as damage:
        raise AuditBroken(str(damage)) from damage


def whole_lines(content: bytes) -> bytes:
    """All but a torn last line: its end is missing, or a power cut left zeros in it, which no line is written with."""
    end = content.rfind(b"\n") + 1
    last = content.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return content[: last if b"\0" in content[last:end] else end]


def verified(
    path: Path, content: bytes, lines_before: int = 0, previous: str = GENESIS
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each line without its digest, and the digest, as long as the chain holds.

    :param content: of the file, after so many lines, of which the last had the digest `previous`.
    :raises AuditBroken: naming the first line that does not follow from the one before.
    """
    for sequence, text in enumerate(content.splitlines(), lines_before):
        try:
            line = json.loads(text)
            digest = line.pop("hash")
            follows = line["previous"] == previous and line["seq"] == sequence and digest == line_digest(line)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            follows = False
        if not follows:
            raise AuditBroken(
                f"{path}: line {sequence + 1} does not follow from the line before it; the log was changed"
            )
        yield line, digest
        previous = digest


def line_digest(line: Mapping[str, Any]) -> str:
    """Digest of a line, from everything in it but the digest."""
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
