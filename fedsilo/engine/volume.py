"""The directory that guard and trainer share, and who may write where.

inbox/task.json            guard    the current task
inbox/blobs/<sha256>       guard    its tensors
drop/signature.json        trainer  what the model looks like, before round 1
drop/<task>/tensors        trainer  the reply's tensors (blob layout)
drop/<task>/reply.json     trainer  samples, metrics, support; its presence says that the drop is complete
drop/<task>/failed.json    trainer  why there is no reply
drop/failed.json           trainer  why there will be none at all
state/<task>/              trainer  private state after that task
guard/                     guard    outbox, acknowledgements; the trainer does not see it
audit/                     guard    the log of everything that left
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Volume:
    """Paths in the shared directory of one silo agent."""

    root: Path

    def prepare(self) -> None:
        """Create the directories that do not exist yet."""
        for path in (self.blobs, self.drop, self.state, self.outbox, self.audit):
            path.mkdir(parents=True, exist_ok=True)

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
    def guard(self) -> Path:
        """What only the guard touches."""
        return self.root / "guard"

    @property
    def outbox(self) -> Path:
        """Signed updates on their way."""
        return self.guard / "outbox"

    @property
    def audit(self) -> Path:
        """Hash-chained log of departures and refusals."""
        return self.root / "audit"
