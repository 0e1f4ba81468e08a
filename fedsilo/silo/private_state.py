"""The silo's private state on disk: what a method keeps in the silo between rounds, one directory per reply.

State advances exactly when the aggregator has the update that belongs to it: a reply's state is stored under the name
of its task, and the next task names the last one whose update was acknowledged.

What an earlier process has stored is checked by its digests before it is used. There is no other copy, so damage is
an error, and never a state that is silently another one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.errors import FileDamaged
from fedsilo.files.durable import link, make_directory, remove, require_content
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.methods.state import State, stored_of

REMEDY = "restore its directory from a backup, or remove the directory to let the silo go on without its private state"


@dataclass(frozen=True)
class PrivateStateStore:
    """Private states of one silo in one job, by the task whose reply they came with.

    :param directory: of the trainer's; one subdirectory per task.
    """

    directory: Path
    _checked: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Digests of the trees that this process wrote or has checked."""

    def load(self, acknowledged: str | None) -> State:
        """The state after the reply to this task; states after any other reply are dropped.

        :param acknowledged: the last task whose update the aggregator has accepted; None before the first.
        :raises FileDamaged: when the state does not hold; nothing is dropped then.
        """
        state = State() if acknowledged is None else self._read(self.directory / acknowledged)
        for path in self.directory.iterdir():
            if path.name != acknowledged and path.is_dir():
                remove(path)
        return state

    def store(self, task: str, state: State) -> bool:
        """Store the state that counts once the reply to this task is acknowledged; whether there is any."""
        if not state.trees and not state.values:
            return False
        stored = self.directory / task
        make_directory(stored)
        for tree in state.trees.values():
            # What did not change lies in the directory of an earlier task, which will be dropped.
            before = stored_of(tree)
            if before is not None and not (stored / before.path.name).exists():
                link(before.path, stored / before.path.name)
        kept = state.store(stored)
        write_with_digest(stored / "state.json", {**kept.to_json(), "task": task})
        self._checked.update(ref.digest for ref in kept.refs().values())
        return True

    def _read(self, stored: Path) -> State:
        if not os.path.lexists(stored):
            return State()
        path = stored / "state.json"
        document = read_with_digest(path, REMEDY, {"trees": dict, "values": dict})
        if document is None:
            raise FileDamaged(f"{path}: is missing; {REMEDY}")
        if document.get("task", stored.name) != stored.name:
            raise FileDamaged(f"{path}: is the state after {document['task']}, another task; {REMEDY}")
        state = State.from_json(document, stored)
        for digest in {ref.digest for ref in state.refs().values()} - self._checked:
            require_content(stored / digest, digest, REMEDY)
            self._checked.add(digest)
        return state
