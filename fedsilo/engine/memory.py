"""Giving freed memory back to the system."""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Return what was freed, and the C library keeps for later, to the system.

    glibc keeps an arena for each thread. After a round of uploads they hold several megabytes of buffers per silo,
    which would add to the peak of folding and scoring. Elsewhere this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # malloc_trim(3): glibc only
    if trim is not None:
        trim(0)
