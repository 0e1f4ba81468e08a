"""The directory that guard and trainer share, and who may write where.

inbox/task.json            guard    the current task
inbox/blobs/<digest>       guard    its tensors
drop/signature.json        trainer  what the model looks like, and what the data are called, before round 1
drop/<task>/tensors        trainer  the reply's tensors (blob layout)
drop/<task>/reply.json     trainer  samples, metrics, support, digests; written last, it completes the drop
drop/<task>/failed.json    trainer  why there is no reply
drop/failed.json           trainer  why there will never be one
state/<task>/              trainer  private state after that task
state/secret.json          trainer  what noise is drawn from, where the method adds any
guard/                     guard    outbox, secrets of secure sums; the trainer does not see it
guard/secret.json          guard    what the noise of updates is drawn from, where the job has the guard add any
audit/                     guard    the log of everything that left

In a cluster each of the first-level directories is a mount of its own, of one volume: no link and no rename leads
from one to another, and a role may lack those that are not its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedsilo.errors import FedsiloError
from fedsilo.files.durable import make_own_directory, require_directory
from fedsilo.files.full_disk import when_there_is_space

REMEDY = "remove it, or put the directory back from a backup"

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.002, 0.05


def pauses() -> Iterator[float]:
    """Seconds between checks for a file that the other role writes, where nothing tells (`fedsilo.silo.file_watch`).

    They begin short, so that a quick answer is noticed at once, and grow to what costs a waiting process nothing.
    """
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(1.5 * pause, MAX_PAUSE_SECONDS)


@dataclass(frozen=True)
class Volume:
    """Paths in the shared directory of one silo agent."""

    root: Path

    def prepare(self) -> None:
        """Create the directories of both roles."""
        self.prepare_guard()
        self.prepare_trainer()

    def prepare_guard(self) -> None:
        """Create the directories that the guard writes into.

        :raises FedsiloError: when this process may not.
        :raises FileDamaged: when something else, such as a link, has the name of one.
        """
        self._make(self.blobs, self.drop, self.outbox, self.audit)

    def prepare_trainer(self) -> None:
        """Create the directories that the trainer writes into; the inbox may be read-only, and still empty.

        :raises FedsiloError: when this process may not.
        """
        self._make(self.drop, self.state)

    @property
    def inbox(self) -> Path:
        """What the guard hands over; the trainer reads it."""
        return self.root / "inbox"

    @property
    def task(self) -> Path:
        """The current task, as the trainer may know it."""
        return self.inbox / "task.json"

    @property
    def blobs(self) -> Path:
        """Tensors that the current task refers to."""
        return self.inbox / "blobs"

    @property
    def drop(self) -> Path:
        """What the trainer hands over."""
        return self.root / "drop"

    @property
    def state(self) -> Path:
        """The silo's private state."""
        return self.root / "state"

    @property
    def secret(self) -> Path:
        """What the silo's own random numbers follow from, see `fedsilo.silo.secret`."""
        return self.state / "secret.json"

    @property
    def guard(self) -> Path:
        """What only the guard touches."""
        return self.root / "guard"

    @property
    def guard_secret(self) -> Path:
        """What the guard's own random numbers follow from, see `fedsilo.silo.secret`."""
        return self.guard / "secret.json"

    @property
    def outbox(self) -> Path:
        """Signed updates on their way."""
        return self.guard / "outbox"

    @property
    def sums(self) -> Path:
        """Secrets of the present secure sum."""
        return self.guard / "sums"

    @property
    def audit(self) -> Path:
        """Hash-chained log of everything that left and everything that was refused."""
        return self.root / "audit"

    def _make(self, *directories: Path) -> None:
        for path in directories:
            if path.parent != self.root and os.path.lexists(path.parent):
                require_directory(path.parent, REMEDY)
            try:
                when_there_is_space(functools.partial(make_own_directory, path, REMEDY))
                found = "" if os.access(path, os.W_OK | os.X_OK) else "may not be written"
            except OSError as error:
                found = f"cannot be made ({error.strerror})"
            if found:
                raise FedsiloError(
                    f"{path}: {found}; give user {os.geteuid()} or group {os.getegid()} the right to write to the "
                    "volume"
                )
