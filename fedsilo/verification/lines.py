"""The lines of a provenance file, as bytes that must be exactly those that were written."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import ValidationError

from fedsilo.api.messages import first_fault
from fedsilo.engine.provenance import ENDING, OPENING, ExchangeLine, JobLine, ModelLine, text_of
from fedsilo.errors import ProvenanceInvalid
from fedsilo.files.json_files import MAX_DOCUMENT_VALUES, JsonError
from fedsilo.files.json_files import parse_json as parsed_json
from fedsilo.wire import update_digest
from fedsilo.wire.envelope import MAX_ENVELOPE_BYTES
from fedsilo.wire.header import MAX_HEADER_BYTES

AnyLine = TypeVar("AnyLine", JobLine, ExchangeLine, ModelLine)

MAX_JOB_BYTES = 4 << 20
"""Most bytes of the first line: a specification is smaller than a manifest, and has a thousand keys at most."""

MAX_SEAL_BYTES = 1 << 16

_SEPARATOR = b",\n"
_SEAL_OPENING = ENDING.removeprefix(b"\n")
_CLOSING = b'"}\n'
_PIECE_BYTES = 1 << 20
_SILO_BYTES = (MAX_ENVELOPE_BYTES + MAX_HEADER_BYTES) // 3 * 4 + 4096


def most_bytes(silos: int) -> int:
    """Most bytes of an exchange's line: a sealed task and the signed part of an update of each silo, in base64."""
    return MAX_JOB_BYTES + silos * _SILO_BYTES


class ChainLines:
    """The lines of a provenance file, read one at a time, and its seal; what they say is not checked.

    :param file: the open file, at its beginning.
    :ivar last: whether the line that was taken last ends the chain.
    :raises ProvenanceInvalid: when the file does not begin as one.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        if file.read(len(OPENING)) != OPENING:
            raise ProvenanceInvalid(f"{path}: does not begin with {OPENING.decode().strip()}")
        self.last = False
        self._path, self._file = path, file

    def take(self, most: int) -> bytes | None:
        """The next line, without its end; None after the last.

        :param most: bytes that it may have.
        :raises ProvenanceInvalid: when it is longer, is no text, or the file ends in it.
        """
        if self.last:
            return None
        line = self._line(most + len(_SEPARATOR))
        self.last = not line.endswith(_SEPARATOR)
        return line.removesuffix(b"\n") if self.last else line.removesuffix(_SEPARATOR)

    def seal(self) -> bytes:
        """What follows after the last line, decoded.

        :raises ProvenanceInvalid: when it is not built as a seal, or something comes after it.
        """
        line = self._line(MAX_SEAL_BYTES)
        if not line.startswith(_SEAL_OPENING) or not line.endswith(_CLOSING) or self._file.read(1):
            raise ProvenanceInvalid(f"{self._path}: does not end with a seal")
        return decode_base64(f"{self._path}: seal", line[len(_SEAL_OPENING) : -len(_CLOSING)].decode())

    def _line(self, most: int) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = self._file.readline(min(_PIECE_BYTES, most + 1 - len(line)))
            line += piece
            if not piece:
                raise ProvenanceInvalid(f"{self._path}: does not end with a seal")
            if len(line) > most:
                raise ProvenanceInvalid(f"{self._path}: has a line of more than {most} bytes")
            if not piece.isascii() or b"\0" in piece:
                raise ProvenanceInvalid(f"{self._path}: is no text of JSON as fedsilo writes it")
        return bytes(line)


def parse_line(where: str, text: bytes, kind: type[AnyLine]) -> AnyLine:
    """A line of this kind.

    :raises ProvenanceInvalid: when it is another, or a byte of it is not as it was written.
    """
    try:
        line = kind.model_validate(parsed_json(text, MAX_DOCUMENT_VALUES))
        written = text_of(line).encode()
    except ValidationError as error:
        raise ProvenanceInvalid(f"{where}: {first_fault(error)}") from None
    except JsonError as wrong:
        raise ProvenanceInvalid(f"{where}: {wrong}") from None
    except (ValueError, RecursionError):
        raise ProvenanceInvalid(f"{where}: is not JSON") from None
    if written != text:
        raise ProvenanceInvalid(f"{where}: is not written as fedsilo writes it")
    return line


def previous_of(text: bytes) -> str | None:
    """The digest that a line names for the line before it, where that can be read."""
    found = re.search(rb'"previous":"([0-9a-f]{64})"', text)
    return found[1].decode() if found else None


def decode_base64(where: str, text: str) -> bytes:
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
        silo: update_digest(decode_base64(f"{where}: update of {silo}", update.signed))
        for silo, update in line.updates.items()
    }
