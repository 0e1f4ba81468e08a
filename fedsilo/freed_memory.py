"""What the C library does with freed memory: gives it back to the system, or keeps it for what is needed next.

Both are glibc's (malloc_trim(3), mallopt(3)); elsewhere they do nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MAX_MMAP_BYTES = 32 << 20
"""glibc takes no larger one on machines of 64 bits."""

KEPT_BYTES = 1 << 30
"""Free memory at the end of the heap above which it is given back at once."""


def release_free_memory() -> None:
    """Return what was freed, and the C library keeps for later, to the system.

    glibc keeps an arena for each thread. After a round of uploads they hold several megabytes of buffers per silo,
    which would add to the peak of folding and scoring.
    """
    if (trim := _glibc("malloc_trim")) is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Keep what a step of training frees for the next one; `release_free_memory` gives it back.

    By itself glibc gives the results of every layer back to the system, or to nobody but the next map of their size: a
    step of a small network then costs hundreds of page faults, about a sixth of the time of training it.
    """
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(M_MMAP_THRESHOLD, MAX_MMAP_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
