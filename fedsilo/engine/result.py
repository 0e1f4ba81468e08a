"""What a finished job leaves: `model.safetensors`, tensors only, and `model.json`, which describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.figures import finite_figures
from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.engine.store import JobIdentity
from fedsilo.files.durable import make_own_directory
from fedsilo.files.json_files import write_json
from fedsilo.wire import write_tensors

CHECKPOINTS = "checkpoints"
"""Folder of the models that the job keeps by the way."""


@dataclass(frozen=True)
class Result:
    """Where the model lies and the digest of its file.

    :param remarks: what a reader of the result must know, as the method says it.
    """

    path: Path
    sha256: str
    metrics: Mapping[str, float]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class FinalModel:
    """A model and what is said of it.

    :param architecture: of the model.
    :param described: what the method has to say of it.
    :param history: of the rounds that it was made in.
    :param round: whose model it is, where that need not be the last one's.
    """

    tree: Mapping[str, np.ndarray]
    architecture: ModelSpec
    described: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    round: int | None = None


def write_result(
    directory: Path, released: FinalModel, spec: FederatedJobSpec, identity: JobIdentity
) -> Result:
    """Write the job's model and its description; doing it again gives the same bytes."""
    return _write(directory / "model.safetensors", released, spec, identity)


def write_checkpoint(
    directory: Path, released: FinalModel, spec: FederatedJobSpec, identity: JobIdentity
) -> None:
    """Write the model of the history's last round as a checkpoint; doing it again gives the same bytes."""
    folder = directory / CHECKPOINTS
    make_own_directory(folder)
    _write(folder / f"round-{released.round:05d}.safetensors", released, spec, identity)


def _write(path: Path, released: FinalModel, spec: FederatedJobSpec, identity: JobIdentity) -> Result:
    ref = write_tensors(released.tree, path)
    metrics = finite_figures(_record(released).get("metrics", {}))
    task = {} if spec.task is None else {"task": spec.task.model_dump(by_alias=True, mode="json")}
    private = spec.privacy.differential_privacy
    described = (
        {}
        if private is None
        else {"differentialPrivacy": private.model_dump(by_alias=True, mode="json", exclude_none=True)}
    )
    description = {
        "model": released.architecture.description_fields(),
        "data": spec.data.model_dump(by_alias=True, mode="json", exclude_none=True),
        **task,
        "method": spec.method.model_dump(by_alias=True, mode="json"),
        "job": {"name": identity.name, "uid": identity.uid, "specDigest": identity.spec_digest},
        "sha256": ref.digest,
        "metrics": metrics,
        "updates": [{"round": line["round"], "digests": line["updates"]} for line in released.history],
        **described,
        **released.described,
        **({} if released.round is None else {"round": released.round}),
    }
    write_json(path.with_suffix(".json"), description)
    return Result(path, ref.digest, metrics, tuple(map(str, released.described.get("remarks", ()))))


def _record(released: FinalModel) -> Mapping[str, Any]:
    """The line of the history whose scores are the model's."""
    chosen = (line for line in released.history if line["round"] == released.round)
    return next(chosen, released.history[-1])
