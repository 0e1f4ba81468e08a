"""Files of the trainer's, as others read them: it runs code that the silo did not write, so no name can be trusted."""

from __future__ import annotations

import json
from io import BufferedReader
from pathlib import Path
from typing import Any

from fedsilo.errors import PolicyRefused
from fedsilo.files.plain_files import open_plain

MAX_JSON_BYTES = 4 << 20


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a plain file of bounded size.

    :raises PolicyRefused: when it is anything else.
    """
    return as_object(path, read_content(path))


def read_content(path: Path) -> bytes:
    """Content of a plain file of bounded size; errors as `read_object`."""
    with trainer_file(path) as file:
        content = file.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise PolicyRefused(f"{path.name}: larger than {MAX_JSON_BYTES} bytes")
    return content


def as_object(path: Path, content: bytes) -> dict[str, Any]:
    """The JSON object that a file holds; errors as `read_object`."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise PolicyRefused(f"{path.name}: not JSON") from None
    if not isinstance(document, dict):
        raise PolicyRefused(f"{path.name}: not a JSON object")
    return document


def trainer_file(path: Path) -> BufferedReader:
    """Open a plain file of the trainer's.

    A link, a pipe or a device would make this process read, or wait for, something else.

    :raises PolicyRefused: when it is anything but a plain file in a plain directory.
    """
    try:
        return open_plain(path, root=path.parent.parent)
    except OSError as error:
        where = f"{path.parent.name}/{path.name}"
        raise PolicyRefused(f"{where}: not a plain file of the trainer's ({error.strerror})") from None
