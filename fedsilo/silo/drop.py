"""A trainer's answer as files, by whose digests a restarted guard or trainer sees whether they still hold.

`reply.json` completes a drop. It holds the digest of the tensors, and ends with one of itself, so that whatever order a
disk writes in, what a power cut leaves of a drop is not taken for a whole one: nothing of it has to be brought to the
disk.

The digests protect against disks, not against the trainer: a drop without them is taken as it is. So they need not
withstand anybody who looks for another file of the same digest: XXH3 finds what disks do to a file as surely as a
cryptographic hash of 128 bits, and costs a fifteenth of SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fedsilo.files.durable import rename, sync, temporary_file
from fedsilo.files.json_files import holds_digest, write_with_digest
from fedsilo.silo.trainer_files import MAX_JSON_BYTES
from fedsilo.wire import blob_parts

REPLY, TENSORS = "reply.json", "tensors"
"""The files of a drop."""

_BEGINNING = b'{"metrics": '
"""Beginning of every reply as a trainer writes it, whose keys are sorted."""

OpenFile = Callable[[Path], AbstractContextManager[BufferedReader]]
"""How a process opens a file of the trainer's."""


def write_drop(
    drop: Path, tensors: Mapping[str, np.ndarray], reply: Mapping[str, Any], durable: bool
) -> None:
    """Write an answer into an empty directory; `reply.json` is last and completes it.

    :param reply: the answer without its tensors.
    :param durable: whether a power cut must leave it: the answer cannot be computed again as it was.
    :raises Problem: when the tensors cannot travel.
    """
    digest = xxhash.xxh3_128()
    with temporary_file(drop) as (file, temporary):
        for part in blob_parts(tensors):
            digest.update(part)
            file.write(part)
        file.flush()
        if durable:
            sync(file, temporary)
        rename(temporary, drop / TENSORS)  # on disk with the name of the reply
    write_with_digest(drop / REPLY, {**reply, TENSORS: digest.hexdigest()}, durable)


def damaged_file(drop: Path, open_file: OpenFile, max_bytes: int) -> Path | None:
    """The first file of a complete drop that is not what the trainer wrote; None if all of it holds.

    :param open_file: how this process opens a file of the trainer's.
    :param max_bytes: larger tensors are not read; whoever uses them refuses them.
    """
    try:
        with open_file(drop / REPLY) as file:
            content = file.read(MAX_JSON_BYTES + 1)
    except OSError:
        return drop / REPLY
    if len(content) > MAX_JSON_BYTES:
        return None
    reply = _object(content)
    if not holds_digest(content):
        # What a disk leaves of a reply begins or ends as one, or is zeros; all else a trainer has written like that.
        torn = reply is None and len(content) != 1 and _BEGINNING.startswith(content[: len(_BEGINNING)])
        named = b'"tensors": ' in content or b'"sha256": ' in content or b"\0" in content
        return drop / REPLY if torn or named else None
    if reply is None or TENSORS not in reply:
        return None
    return None if _has_digest(drop / TENSORS, reply[TENSORS], open_file, max_bytes) else drop / TENSORS


def _has_digest(path: Path, digest: Any, open_file: OpenFile, max_bytes: int) -> bool:
    if not os.path.lexists(path):
        return False  # a power cut took its name, whatever `open_file` calls that
    try:
        with open_file(path) as file:
            small = file.seek(0, os.SEEK_END) <= max_bytes
            file.seek(0)
            return not small or hashlib.file_digest(file, xxhash.xxh3_128).hexdigest() == digest
    except OSError:
        return False


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
