"""The silo's private state on disk: what a method keeps in the silo between rounds, one directory per reply.

State advances exactly when the aggregator has the update that belongs to it: a reply's state is stored under the name
of its task, and the next task names the last one whose update was acknowledged.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedsilo.durable import read_json, write_json
from fedsilo.methods.state import State, StoredTree


@dataclass(frozen=True)
class PrivateStates:
    """Private states of one silo in one job, by the task whose reply they came with.

    :param directory: of the trainer's; one subdirectory per task.
    """

    directory: Path

    def load(self, acknowledged: str | None) -> State:
        """The state after the reply to this task; states after any other reply are dropped.

        :param acknowledged: the last task whose update the aggregator has accepted; None before the first.
        """
        for path in self.directory.iterdir():
            if path.name != acknowledged and path.is_dir():
                shutil.rmtree(path)
        if acknowledged is None:
            return State()
        stored = self.directory / acknowledged
        document = read_json(stored / "state.json")
        return State() if document is None else State.from_json(document, stored)

    def store(self, task: str, state: State) -> None:
        """Store the state that counts once the reply to this task is acknowledged."""
        if not state.trees and not state.values:
            return
        stored = self.directory / task
        stored.mkdir(exist_ok=True)
        for tree in state.trees.values():
            # What did not change lies in the directory of an earlier task, which will be dropped.
            if isinstance(tree, StoredTree) and not (stored / tree.path.name).exists():
                os.link(tree.path, stored / tree.path.name)
        write_json(stored / "state.json", state.store(stored).to_json())
