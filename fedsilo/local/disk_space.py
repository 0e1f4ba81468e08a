"""A full disk delays a run: whatever writes waits, says so, and goes on when there is space."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedsilo.files.durable import is_disk_full

T = TypeVar("T")

PAUSE_SECONDS = 0.5
"""Time between two attempts to write to a full disk."""


@dataclass
class DiskSpaceCheck:
    """Whether a run's directory can be written to.

    :param directory: of the run, for messages.
    :param say: tells the user, once, that the disk is full, and once that there is space again.
    :param check: called while there is no space; what it raises ends the run.
    """

    directory: Path
    say: Callable[[str], None]
    check: Callable[[], None] = lambda: None
    is_full: bool = False

    def wait(self, write: Callable[[], T]) -> T:
        """What this returns, which writes and may be repeated, as soon as there is space for it.

        :raises OSError: anything but a full disk.
        """
        while (result := self.attempt(write)) is None:
            self.check()
            time.sleep(PAUSE_SECONDS)
        return result[0]

    def attempt(self, write: Callable[[], T]) -> tuple[T] | None:
        """What this returns, in a tuple, or None where the disk is full; errors as `wait`."""
        try:
            result = write()
        except OSError as error:
            if not is_disk_full(error):
                raise
            if not self.is_full:
                self.say(f"{self.directory}: the disk is full; the run goes on when there is space")
            self.is_full = True
            return None
        if self.is_full:
            self.say(f"{self.directory}: there is space again; the run goes on")
        self.is_full = False
        return (result,)
