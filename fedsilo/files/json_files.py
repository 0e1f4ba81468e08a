"""JSON files that survive a crash whole, and those of them that end with a digest of their own text.

What is read again is checked: that it is JSON, that it is as it was written, and that it is the file of this name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsilo.errors import FileDamaged
from fedsilo.files.durable import MAX_BYTES, RESTORE, read_file, write_durably, write_visibly
from fedsilo.files.plain_files import open_plain, require_size

Fields = Mapping[str, type | tuple[type, ...]]
"""Name of a field -> the types that its value may have."""

NO_FIELDS: Fields = {}

MAX_DOCUMENT_BYTES, MAX_DOCUMENT_VALUES = 16 << 20, 250_000
"""Most bytes, and values, of a document that somebody else hands over, where nothing says how large it has to be.

Empty lists take thirty times the memory of their text.
"""

MAX_DESCRIPTION_BYTES = 256 << 20
"""Most bytes of a model's description: room for the digests of more than two million updates, with which it grows.

A job of 100 silos and 10,000 rounds has one million, with secure sums five.
"""

_DIGEST_BYTES = 48
"""Fewer than one value takes in a text that is long because it is full of digests."""

_PIECE_BYTES = 1 << 20


class JsonError(ValueError):
    """A text that is not JSON, or more work than a document may be; its text says where, and quotes nothing."""


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file durably.

    :raises ValueError: for NaN and infinity, which no other reader of JSON takes.
    """
    write_durably(path, json.dumps(document, sort_keys=True, allow_nan=False).encode())


def write_json_visibly(path: Path, document: Any) -> None:
    """Replace a JSON file that nothing relies on after a power cut.

    :raises ValueError: for NaN and infinity, which no other reader of JSON takes.
    """
    write_visibly(path, json.dumps(document, sort_keys=True, allow_nan=False).encode())


def read_json(path: Path, remedy: str = RESTORE) -> Any:
    """Content of a JSON file, or None where there is no such file.

    :param remedy: what a person can do about a damaged one.
    :raises FileDamaged: when it is not whole JSON; the error names the place and quotes nothing of the file.
    """
    content = read_file(path, remedy)
    return None if content is None else _parse_file(path, content, remedy)


def write_with_digest(path: Path, document: Mapping[str, Any], durable: bool = True) -> None:
    """Replace a JSON object; last in it comes `sha256`, the digest of the text before.

    :param durable: False for what can be had again after a power cut.
    """
    write = write_durably if durable else write_visibly
    write(path, content_with_digest(document))


def content_with_digest(document: Mapping[str, Any]) -> bytes:
    """The content of such a file."""
    text = json.dumps(document, sort_keys=True)[:-1] + (", " if document else "")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text}"sha256": "{digest}"}}'.encode()


def read_with_digest(
    path: Path,
    remedy: str = RESTORE,
    fields: Fields = NO_FIELDS,
    most: int = MAX_BYTES,
    most_values: int | None = None,
) -> dict[str, Any] | None:
    """The object of `write_with_digest`, or None where there is no such file.

    :param fields: what it must hold, so that no other file is taken for it.
    :param most: bytes that it may have.
    :param most_values: and values, of a file that somebody else hands over.
    :raises FileDamaged: when a single bit is not as it was written, or the file is another one.
    """
    content = read_file(path, remedy, most)
    if content is None:
        return None
    document = _parse_file(path, content, remedy, most_values)
    if not holds_digest(content):
        raise FileDamaged(f"{path}: its content does not match the sha256 at its end; {remedy}")
    require_fields(path, document, fields, remedy)
    return {name: value for name, value in document.items() if name != "sha256"}


def holds_digest(content: bytes) -> bool:
    """Whether the content of a file of `write_with_digest` is as it was written."""
    text, _, end = content.rpartition(b'"sha256": ')
    return end == f'"{hashlib.sha256(text).hexdigest()}"}}'.encode()


def require_fields(path: Path, document: Mapping[str, Any], fields: Fields, remedy: str = RESTORE) -> None:
    """Return if a document of a file, or a part of it, has these fields.

    :raises FileDamaged: naming the first that it lacks.
    """
    for name, kind in fields.items():
        if not isinstance(document.get(name), kind):
            raise FileDamaged(f"{path}: is not the file of this name, it lacks {name!r}; {remedy}")


def read_document(path: Path, root: Path | None = None, most: int = MAX_DOCUMENT_BYTES) -> Any:
    """Value of a JSON document that somebody else hands over.

    It may hold `MAX_DOCUMENT_VALUES`, and more only where its text is as long as that of so many digests.

    :param root: as of `fedsilo.files.plain_files.open_plain`.
    :param most: bytes that it may have.
    :raises JsonError: when it is not JSON, or holds too many values.
    :raises OSError: when it cannot be read, or is no plain file of bounded size (`UnfitFile`).
    """
    content = bytearray()
    with open_plain(path, root, links=True) as file:
        require_size(path, os.fstat(file.fileno()).st_size, most)
        while piece := file.read(_PIECE_BYTES):
            # What takes no disk is zeros, and takes no memory either.
            if (zero := piece.find(0)) >= 0:
                raise JsonError(f"byte {len(content) + zero} is not JSON")
            content += piece
            require_size(path, len(content), most)
    return parse_json(content, max(MAX_DOCUMENT_VALUES, len(content) // _DIGEST_BYTES))


def parse_json(content: bytes | bytearray, most_values: int | None = None) -> Any:
    """The value of a JSON text.

    :param most_values: refuse a text that may hold more, before any of them takes memory.
    :raises JsonError: when it is none.
    """
    if most_values is not None and sum(map(content.count, (b",", b"[", b"{"))) > most_values:
        raise JsonError(f"holds more than {most_values} values")
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno} is not JSON" if content else "is empty"
        raise JsonError(place) from None
    except (ValueError, RecursionError):
        raise JsonError("is nested too deeply, or holds a number that is too long") from None


def _parse_file(path: Path, content: bytes, remedy: str, most_values: int | None = None) -> Any:
    try:
        return parse_json(content, most_values)
    except JsonError as wrong:
        raise FileDamaged(f"{path}: {wrong}; {remedy}") from None
