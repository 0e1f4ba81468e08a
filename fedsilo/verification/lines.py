"""The lines of a provenance file, as bytes that must be exactly those that were written."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fedsilo.api.messages import first_fault
from fedsilo.durable import readable
from fedsilo.engine.provenance import ENDING, OPENING, ExchangeLine, JobLine, ModelLine, text_of
from fedsilo.errors import ProvenanceInvalid
from fedsilo.wire import update_digest

AnyLine = TypeVar("AnyLine", JobLine, ExchangeLine, ModelLine)

_CLOSING = b'"}\n'


def split(path: Path) -> tuple[list[bytes], bytes]:
    """The chain's lines and its seal, neither of them checked.

    :raises ProvenanceInvalid: when the file is not built as one.
    :raises FileDamaged: when it cannot be read.
    """
    with readable(path):
        content = path.read_bytes()
    if not content.startswith(OPENING):
        raise ProvenanceInvalid(f"{path}: does not begin with {OPENING.decode().strip()}")
    end = content.rfind(ENDING)
    if end < len(OPENING) or not content.endswith(_CLOSING):
        raise ProvenanceInvalid(f"{path}: does not end with a seal")
    seal = content[end + len(ENDING) : -len(_CLOSING)]
    return content[len(OPENING) : end].split(b",\n"), decoded(f"{path}: seal", seal.decode(errors="replace"))


def parsed(where: str, text: bytes, kind: type[AnyLine]) -> AnyLine:
    """A line of this kind.

    :raises ProvenanceInvalid: when it is another, or a byte of it is not as it was written.
    """
    try:
        line = kind.model_validate(json.loads(text))
        written = text_of(line).encode()
    except ValidationError as error:
        raise ProvenanceInvalid(f"{where}: {first_fault(error)}") from None
    except (ValueError, RecursionError):
        raise ProvenanceInvalid(f"{where}: is not JSON") from None
    if written != text:
        raise ProvenanceInvalid(f"{where}: is not written as fedsilo writes it")
    return line


def previous_of(text: bytes) -> str | None:
    """The digest that a line names for the line before it, where that can be read."""
    found = re.search(rb'"previous":"([0-9a-f]{64})"', text)
    return found[1].decode() if found else None


def decoded(where: str, text: str) -> bytes:
    """Bytes from base64, of which they have only one form.

    :raises ProvenanceInvalid: when it is another form, or none.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    if base64.b64encode(data).decode() != text:
        raise ProvenanceInvalid(f"{where}: is not base64")
    return data


def names_of_updates(where: str, line: ExchangeLine) -> dict[str, str]:
    """Silo -> the name of its update, by which model.json and the silo's audit log know it too.

    :raises ProvenanceInvalid: as `decoded`.
    """
    return {
        silo: update_digest(decoded(f"{where}: update of {silo}", update.signed))
        for silo, update in line.updates.items()
    }
