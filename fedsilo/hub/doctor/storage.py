"""Whether a directory keeps what is written to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedsilo.files.durable import unlink, write_durably
from fedsilo.hub.doctor.finding import Finding, failed_finding, holds

MINIMUM_FREE_BYTES = 1 << 30
"""A job keeps its tasks, private state and last update on the disk, each of the model's size."""


def examine_storage(root: Path, file: Path) -> Finding:
    """Whether files stay on the disk: content is synced, a name replaced, and both read again.

    :param root: what is examined.
    :param file: one in it that is written and removed.
    """
    try:
        write_durably(file, b"before")
        write_durably(file, b"after")
        same = file.read_bytes() == b"after"
        unlink(file)
        free = shutil.disk_usage(root).free
    except OSError as error:
        return failed_finding(
            "storage",
            f"{root}: {error.strerror}; let this user write there, and look at the disk: full, or faulty",
        )
    if not same:
        return failed_finding("storage", f"{root}: a file does not hold what was written; replace the disk")
    if free < MINIMUM_FREE_BYTES:
        need = MINIMUM_FREE_BYTES >> 20
        return failed_finding(
            "storage", f"{root}: {free >> 20} MiB are free; make room for at least {need} MiB"
        )
    return holds("storage", f"{root}: writes, syncs and renames; {free >> 30} GiB are free")
