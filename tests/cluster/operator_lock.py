"""The operator on the test cluster is shared by the workers, or one has it alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from hack.cluster.paths import STATE

LOCK = STATE / "tests.lock"


@contextmanager
def share_operator() -> Iterator[None]:
    """For as long as the block runs, nobody stops the operator or takes it away."""
    with _hold_lock(fcntl.LOCK_SH):
        yield


@contextmanager
def reserve_operator() -> Iterator[None]:
    """For as long as the block runs, nobody else needs it."""
    with _hold_lock(fcntl.LOCK_EX):
        yield


@contextmanager
def _hold_lock(how: int) -> Iterator[None]:
    with LOCK.open("a") as file:
        fcntl.flock(file, how)
        yield
