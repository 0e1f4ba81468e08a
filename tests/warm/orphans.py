"""Who becomes the parent of a process that has lost its own; Linux (prctl(2))."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Meanwhile, a process below this one that loses its parent becomes a child of this one."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
