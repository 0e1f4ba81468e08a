"""Files that survive a crash whole: either the old content is there or the new one, never a part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file: new content, flushed to the disk, then renamed into place."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file durably."""
    write_durably(path, json.dumps(document, sort_keys=True).encode())


def read_json(path: Path) -> Any:
    """Content of a JSON file, or None where there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def append_durably(path: Path, line: str) -> None:
    """Append one line and flush it to the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make renames and new names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
