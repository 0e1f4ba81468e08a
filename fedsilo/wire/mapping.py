"""Memory-mapped files that leave memory when they are done with."""

from __future__ import annotations

import mmap


def release(mapped: mmap.mmap) -> None:
    """Give a mapping's memory back at once, although arrays over it may still be alive.

    The target of the caller's `with` usually is. Unmapping under it would turn a late read into a crash, so its
    pages are dropped instead: a late read fetches them from the file again, and the last array unmaps.
    """
    try:
        mapped.close()
    except BufferError:
        mapped.madvise(mmap.MADV_DONTNEED)
