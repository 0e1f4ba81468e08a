"""What the trainer says beside its replies: that it cannot answer, and what it announces before round 1."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.files.json_files import holds_digest
from fedsilo.silo.trainer_files import as_object, read_content, read_object

REASON = re.compile(r"[A-Z][A-Za-z]{0,63}")
"""Reasons that the aggregator takes; see docs/wire.md."""


def read_failure(path: Path) -> tuple[str, str]:
    """Reason and message of a `failed.json` of the trainer."""
    document = read_object(path)
    reason, message = document.get("reason"), document.get("message")
    if not isinstance(reason, str) or not REASON.fullmatch(reason) or not isinstance(message, str):
        raise PolicyRefused(
            f"{path.name}: not a failure report with a reason in one CamelCase word and a message"
        )
    return reason, message


@dataclass(frozen=True)
class Announcement:
    """What a trainer says before round 1, as plain values that nobody has checked.

    :param signature: of the model; None where the data are not named as in the job, and nothing will be trained.
    :param schema: of the data; None of a trainer that announces none.
    :param findings: what a check of the data says; likewise.
    """

    signature: Any
    isolation: str
    schema: Any
    findings: Any = None


def read_announcement(path: Path) -> Announcement:
    """The content of `signature.json`.

    :raises FileDamaged: when it has a digest and is not what the trainer wrote.
    """
    content = read_content(path)
    if b'"sha256": ' in content and not holds_digest(content):
        raise FileDamaged(f"{path}: damaged, it is not what the trainer wrote; start the trainer again")
    document = as_object(path, content)
    signature, schema, findings = (document.get(name) for name in ("signature", "schema", "findings"))
    return Announcement(signature, str(document.get("isolation", "")), schema, findings)
