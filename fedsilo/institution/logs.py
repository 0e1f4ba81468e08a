"""Output of guards and trainers, in files of bounded size, however much a job's code prints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from fedsilo.files.durable import is_disk_full

log = logging.getLogger("fedsilo.silo")

MAX_LOG_BYTES = 8 << 20
"""Length at which a log begins anew; what it had before stays beside it once."""

MAX_LOGS_BYTES = 512 << 20
"""Length of all logs, beyond which the oldest of parts that are over are removed."""

ROTATED_SUFFIX = ".1"
"""What the name of a log's earlier part ends with."""


def bound_logs(directory: Path, in_use: Callable[[str], bool]) -> None:
    """Shorten logs that are too long, and remove the oldest where all are.

    A log is copied and truncated, as logrotate's `copytruncate` does: whoever writes has it open to append, and goes on
    at its beginning. Lines that are written in between are lost.

    :param in_use: whether the log of that name is written, or may be.
    """
    sizes: dict[Path, tuple[float, int]] = {}
    for path in sorted(directory.glob("*.log*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix != ROTATED_SUFFIX and path.stat().st_size > MAX_LOG_BYTES:
            _begin_anew(path)
        found = path.stat()
        sizes[path] = found.st_mtime, found.st_size
    total = sum(size for _, size in sizes.values())
    for path, (_, size) in sorted(sizes.items(), key=lambda one: one[1]):
        if total <= MAX_LOGS_BYTES:
            return
        if not in_use(path.name):
            path.unlink(missing_ok=True)
            total -= size


def _begin_anew(path: Path) -> None:
    """Keep the end of a log beside it, and empty it."""
    with path.open("r+b") as file:
        file.seek(max(0, path.stat().st_size - MAX_LOG_BYTES))
        try:
            path.with_name(f"{path.name}{ROTATED_SUFFIX}").write_bytes(file.read(MAX_LOG_BYTES))
        except OSError as error:
            if not is_disk_full(error):
                raise
            log.warning("%s: begins anew; what it had is lost, for lack of room", path)
        file.truncate(0)
