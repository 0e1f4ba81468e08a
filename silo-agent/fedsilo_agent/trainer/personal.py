"""The silo's own model as files of the institution: `personal.safetensors` and `personal.json`.

They lie beside the private state and follow it: what the aggregator has not acknowledged is not in them. They stay
when the job is over, and nothing in the agent trusts them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from fedsilo.durable import read_json, sync_directory, write_json
from fedsilo.engine.runner import TaskRunner
from fedsilo.methods.interface import PERSONAL
from fedsilo.methods.state import State, StoredTree

TENSORS, DESCRIPTION = f"{PERSONAL}.safetensors", f"{PERSONAL}.json"


log = logging.getLogger("fedsilo.trainer")


@dataclass(frozen=True)
class PersonalModel:
    """Where the institution finds its model.

    :param directory: of the silo's volume.
    :param runner: what makes the model, if its method makes one.
    """

    directory: Path
    runner: TaskRunner

    def offer(self, private: State) -> None:
        """Put the private state's model there, whole or not at all, unless it is there already.

        A disk that is full is no reason to stop: the next task tries again.
        """
        stored = private.trees.get(PERSONAL)
        if not self.runner.personalises or not isinstance(stored, StoredTree):
            return
        try:
            self._publish(stored)
        except OSError as error:
            log.warning("%s was not written: %s", self.directory / TENSORS, error)

    def _publish(self, stored: StoredTree) -> None:
        said = read_json(self.directory / DESCRIPTION)
        if said is not None and said["sha256"] == stored.ref.digest and (self.directory / TENSORS).exists():
            return
        temporary = self.directory / f".{secrets.token_hex(8)}.tmp"
        try:
            os.link(stored.path, temporary)
            temporary.replace(self.directory / TENSORS)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        sync_directory(self.directory)
        write_json(self.directory / DESCRIPTION, self._description(stored.ref.digest))

    def _description(self, digest: str) -> dict[str, object]:
        context = self.runner.context
        return {
            "model": context.spec.model.model_dump(by_alias=True, mode="json"),
            "data": context.spec.data.model_dump(by_alias=True, mode="json"),
            "method": context.spec.method.model_dump(by_alias=True, mode="json"),
            "silo": context.silo,
            "sha256": digest,
        }
