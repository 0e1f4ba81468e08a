"""What unit tests draw, and a disk that they fill."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

import pytest

from fedsilo.files import durable, full_disk
from fedsilo.files.durable import DiskStep


@pytest.fixture(autouse=True)
def seed_torch() -> None:
    """Have a test draw the same weights whatever ran before it in its process."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


class FilledDisk:
    """The disk of all durable steps, without space where a test says so.

    :ivar full: so many steps to come find no space.
    """

    def __init__(self) -> None:
        self.full = 0

    def take(self, step: DiskStep, perform: Callable[[], None]) -> None:
        """Do a step, or find no space for it."""
        if self.full:
            self.full -= 1
            raise OSError(errno.ENOSPC, "No space left on device", str(step.path))
        perform()


@pytest.fixture
def filled_disk(monkeypatch: pytest.MonkeyPatch) -> FilledDisk:
    disk = FilledDisk()
    monkeypatch.setattr(durable, "intercept", disk.take)
    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    return disk
