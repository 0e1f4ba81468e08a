"""The operator on the test cluster is shared by the workers, or one has it alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from hack.cluster.paths import STATE

LOCK = STATE / "tests.lock"


@contextmanager
def shared() -> Iterator[None]:
    """For as long as the block runs, nobody stops the operator or takes it away."""
    with _locked(fcntl.LOCK_SH):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """For as long as the block runs, nobody else needs it."""
    with _locked(fcntl.LOCK_EX):
        yield


@contextmanager
def _locked(how: int) -> Iterator[None]:
    with LOCK.open("a") as file:
        fcntl.flock(file, how)
        yield
