"""The chain of an audit log: each line carries the digest of the line before it and its own.

The guard writes it (`fedsilo_agent.guard.audit`); whoever reads a log checks it here first.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.files.durable import translate_read_errors
from fedsilo.files.json_files import parse_json
from fedsilo.files.plain_files import open_plain

FILE = "log.jsonl"
"""Name of the log in its directory."""

MAX_LINE_BYTES, MAX_LINE_VALUES = 1 << 20, 20_000
"""Most bytes and values of a line, many times what a guard writes."""

GENESIS = "0" * 64
"""What the first line has in place of the digest of a line before it."""


class AuditBroken(PolicyRefused):
    """An audit log or a ledger was changed; nothing leaves until a person has checked it."""

    reason = "AuditBroken"


def content_of(path: Path, start: int = 0) -> bytes:
    """Content of a log, nothing where there is none yet.

    :param start: leave out so many bytes at its beginning.
    :raises AuditBroken: when something else has its name, or it has a line that is longer than any.
    """
    pieces, unended = [], 0
    try:
        with translate_read_errors(path, "the log was changed; find out by whom"), open_plain(path) as file:
            file.seek(start)
            while piece := file.read(MAX_LINE_BYTES):
                # Before the rest is read: a file of a terabyte may have no line at all.
                end = piece.rfind(b"\n")
                unended = len(piece) - 1 - end if end >= 0 else unended + len(piece)
                if unended > MAX_LINE_BYTES:
                    raise AuditBroken(f"{path}: has a line that no guard writes; find out who did")
                pieces.append(piece)
    except FileNotFoundError:
        return b""
    except FileDamaged as damage:
        raise AuditBroken(str(damage)) from damage
    return b"".join(pieces)


def whole_lines(content: bytes) -> bytes:
    """All but a torn last line: its end is missing, or a power cut left zeros in it, which no line is written with."""
    end = content.rfind(b"\n") + 1
    last = content.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return content[: last if b"\0" in content[last:end] else end]


def verified_lines(
    path: Path, content: bytes, lines_before: int = 0, previous: str = GENESIS
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each line without its digest, and the digest, as long as the chain holds.

    :param content: of the file, after so many lines, of which the last had the digest `previous`.
    :raises AuditBroken: naming the first line that does not follow from the one before.
    """
    for sequence, text in enumerate(io.BytesIO(content), lines_before):
        try:
            line = parse_json(text, MAX_LINE_VALUES)
            digest = line.pop("hash")
            # As it was written, to the byte: the digest of a line does not tell which of two equal keys it has.
            whole = digest == line_digest(line) and text.removesuffix(b"\n") == text_of(line, digest).encode()
            follows = whole and line["previous"] == previous and line["seq"] == sequence
        except (ValueError, KeyError, TypeError, AttributeError):
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


def text_of(line: Mapping[str, Any], digest: str) -> str:
    """A line as it stands in the file, with its digest."""
    return json.dumps({**line, "hash": digest}, sort_keys=True)
