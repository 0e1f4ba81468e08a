"""A trainer's answer as files, with digests by which a restarted guard or trainer sees whether it still holds.

They protect against disks, not against the trainer: a drop without them is taken as it is. So they need not withstand
anybody who looks for another file of the same digest: XXH3 finds what disks do to a file as surely as a cryptographic
hash of 128 bits, and costs a fifteenth of SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path

import numpy as np
import xxhash

from fedsilo.durable import append_durably, rename, sync, temporary_file, write_durably
from fedsilo.wire import blob_parts

DIGESTS = "digests"
"""Name of the file; the others are `tensors` and `reply.json`."""

MAX_BYTES = 4096
"""Largest file of digests that is read."""


def write_drop(drop: Path, tensors: Mapping[str, np.ndarray], reply: bytes) -> None:
    """Write an answer into an empty directory; `reply.json` is last and completes it.

    :param reply: content of `reply.json`.
    :raises Problem: when the tensors cannot travel.
    """
    digest = xxhash.xxh3_128()
    with temporary_file(drop) as (file, temporary):
        for part in blob_parts(tensors):
            digest.update(part)
            file.write(part)
        sync(file, temporary)
        rename(temporary, drop / "tensors")  # on disk with the name of the digests
    write_digests(drop, {"tensors": digest.hexdigest(), "reply.json": digest_of(reply)})
    write_durably(drop / "reply.json", reply)


def digest_of(content: bytes) -> str:
    """The digest of a file with this content."""
    return xxhash.xxh3_128(content).hexdigest()


def write_digests(drop: Path, digests: Mapping[str, str]) -> None:
    """Write them durably; `reply.json`, which is written later, completes the drop.

    A whole drop beside digests that a power cut has torn would be taken for a damaged one, and computed again.
    """
    append_durably(drop / DIGESTS, json.dumps(dict(digests), sort_keys=True))


def damaged_file(
    drop: Path, open_file: Callable[[Path], AbstractContextManager[BufferedReader]], max_bytes: int
) -> Path | None:
    """The first file of a complete drop that is not what the trainer wrote; None if all of it holds.

    :param open_file: how this process opens a file of the trainer's.
    :param max_bytes: larger files are not read; whoever uses them refuses them.
    """
    if not os.path.lexists(drop / DIGESTS):
        return None
    try:
        with open_file(drop / DIGESTS) as file:
            digests = json.loads(file.read(MAX_BYTES))
        wanted = {name: digests[name] for name in ("reply.json", "tensors")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return drop / DIGESTS
    for name, digest in wanted.items():
        try:
            with open_file(drop / name) as file:
                small = file.seek(0, 2) <= max_bytes
                file.seek(0)
                if small and hashlib.file_digest(file, xxhash.xxh3_128).hexdigest() != digest:
                    return drop / name
        except OSError:
            return drop / name
    return None
