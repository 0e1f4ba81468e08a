"""The silo's own model as files of the institution: `personal.safetensors` and `personal.json`.

They lie beside the private state and follow it: what the aggregator has not acknowledged is not in them. They stay
when the job is over, and nothing in the agent trusts them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedsilo.errors import FedsiloError, FileDamaged
from fedsilo.files.durable import link, make_directory, rename, require_content, sync_directory, unlink
from fedsilo.files.json_files import read_json, write_json
from fedsilo.methods.interface import PERSONAL_TREE, PREPROCESSING
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, StoredTree
from fedsilo.wire import write_tensors

TENSORS, DESCRIPTION = f"{PERSONAL_TREE}.safetensors", f"{PERSONAL_TREE}.json"

log = logging.getLogger("fedsilo.personal")


@dataclass(frozen=True)
class PersonalModel:
    """Where the institution finds its model.

    :param directory: of the silo's private state.
    :param method: of the job that the model comes from.
    :param silo: reference of the silo.
    """

    directory: Path
    method: Method
    silo: str
    _checked: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Digests of the models that this process wrote or has checked."""

    def publish(self, private: State) -> None:
        """Write the private state's model atomically; one that is on file already is linked.

        A full disk is only logged: the next task tries again.
        """
        tree = private.trees.get(PERSONAL_TREE)
        if tree is None or not self.method.models.in_silos(self.method.spec):
            return
        try:
            self._write(tree, _preprocessing(private))
        except OSError as error:
            log.warning("%s was not written: %s", self.directory / TENSORS, error)

    def _write(self, tree: Mapping[str, np.ndarray], described: Mapping[str, object]) -> None:
        make_directory(self.directory)
        path = self.directory / TENSORS
        if not isinstance(tree, StoredTree):
            digest = write_tensors(dict(tree), path).digest
        elif self._is_there(tree.ref.digest, described):
            return
        else:
            digest = tree.ref.digest
            self._link(tree.path, path)
        write_json(self.directory / DESCRIPTION, self._description(digest, described))
        self._checked.add(digest)

    def _is_there(self, digest: str, described: Mapping[str, object]) -> bool:
        try:
            description = read_json(self.directory / DESCRIPTION)
        except FedsiloError as damage:
            log.warning("%s; writing it again", damage)
            return False
        if not isinstance(description, dict) or description != self._description(digest, described):
            return False
        if digest not in self._checked:
            try:
                require_content(self.directory / TENSORS, digest, "it is written again")
            except FileDamaged as damage:
                log.warning("%s", damage)
                return False
            self._checked.add(digest)
        return (self.directory / TENSORS).exists()

    def _link(self, stored: Path, path: Path) -> None:
        """Give a file a second name: it is as large as the model, and its content never changes."""
        temporary = self.directory / f".{secrets.token_hex(8)}.tmp"
        try:
            link(stored, temporary)
            rename(temporary, path)
        finally:
            unlink(temporary, missing_ok=True)
        sync_directory(self.directory)

    def _description(self, digest: str, described: Mapping[str, object]) -> dict[str, object]:
        spec = self.method.spec
        return {
            "model": self.method.models.own_architecture(spec).description_fields(),
            "data": spec.data.model_dump(by_alias=True, mode="json", exclude_none=True),
            "method": spec.method.model_dump(by_alias=True, mode="json"),
            "silo": self.silo,
            "sha256": digest,
            **described,
        }


def _preprocessing(private: State) -> dict[str, object]:
    """What the model does with raw values first, where the job does anything."""
    if PREPROCESSING not in private.trees:
        return {}
    from fedsilo.learning.preprocessing_numbers import to_document

    return {PREPROCESSING: to_document(private.tree(PREPROCESSING))}
