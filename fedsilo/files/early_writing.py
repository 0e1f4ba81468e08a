"""A file is brought to the disk while it grows, and not all at once when it is complete."""

from __future__ import annotations

import functools
from collections.abc import Callable

EARLY_BYTES = 8 << 20
"""Amount of a growing file that the system is asked to bring to the disk at a time."""

SYNC_FILE_RANGE_WRITE = 2
"""Flag by which sync_file_range(2) begins to write what is not under way yet, and does not wait for it."""


class EarlyWriter:
    """Has the system bring a file to the disk while it grows, so that `sync` at its end finds little left.

    :param begun: position in the file up to which nothing of that is to be done.
    """

    def __init__(self, descriptor: int, begun: int) -> None:
        self._descriptor = descriptor
        self._begun = begun

    def start_writeback(self, position: int) -> None:
        """All before this position is written; where the system cannot begin early, it does so with `sync`."""
        if position - self._begun < EARLY_BYTES:
            return
        function = _sync_file_range()
        if function is not None:
            function(self._descriptor, self._begun, position - self._begun, SYNC_FILE_RANGE_WRITE)
        self._begun = position


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """sync_file_range(2), which Linux has and Python's `os` has not."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function
