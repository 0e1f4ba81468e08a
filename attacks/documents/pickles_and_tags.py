"""Pickles in place of tensors and arrays, and YAML whose tags call a function: a model, the data of a silo, a manifest.

By: somebody whose model, data or manifest a person opens.

Must: refused with one line; nothing is unpickled, and no tag is known that JSON does not have.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
from typing_extensions import override

from attacks.handed_over import LOAD_MODEL, MODEL, HandedOver

TAGS = (
    "!!python/object/apply:os.system [touch canary]",
    "!!python/name:os.system ''",
    "!!python/module:os ''",
)


class _PlantedObject:
    """Runs code when it is unpickled."""

    def __init__(self, code: str) -> None:
        self._code = code

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return exec, (self._code,)


def attack(target: HandedOver) -> None:
    pickled = pickle.dumps(_PlantedObject(target.planted_code))
    at = target.copy()
    _replace(at / MODEL, pickled, target)
    for command in ((LOAD_MODEL, MODEL), ("evaluate", "--model", MODEL, "-f", "job.yaml")):
        target.expect_refused("model.safetensors", *command, at=at, codes=(2, 3, 6, 7, 8))
    at = target.copy()
    np.savez(at / "s0.npz", images=np.array([_PlantedObject(target.planted_code)] * 4), labels=np.arange(4))
    target.expect_refused("s0.npz", "evaluate", "--model", MODEL, "-f", "job.yaml", at=at, codes=(3,))
    for tag in TAGS:
        at = target.copy()
        manifest = at / "job.yaml"
        manifest.write_text(manifest.read_text().replace("name: mlp", f"name: {tag}"))
        target.expect_refused("job.yaml", "validate", "-f", "job.yaml", at=at)


def _replace(model: Path, content: bytes, target: HandedOver) -> None:
    """Other content of which `model.json` has the digest."""
    model.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    target.edit_json(model.with_suffix(".json"), lambda document: document.update(sha256=digest))
