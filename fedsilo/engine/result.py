"""What a finished job leaves: `model.safetensors`, tensors only, and `model.json`, which describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.figures import finite
from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.engine.store import JobIdentity
from fedsilo.json_files import write_json
from fedsilo.wire import write_tensors


@dataclass(frozen=True)
class Result:
    """Where the model lies and the digest of its file."""

    path: Path
    sha256: str
    metrics: Mapping[str, float]


def write_result(
    directory: Path,
    tree: Mapping[str, np.ndarray],
    architecture: ModelSpec,
    spec: FederatedJobSpec,
    identity: JobIdentity,
    history: Sequence[Mapping[str, Any]],
    described: Mapping[str, Any],
) -> Result:
    """Write model and description; doing it again gives the same bytes.

    :param described: further fields of the description.
    """
    path = directory / "model.safetensors"
    ref = write_tensors(tree, path)
    metrics = finite(history[-1].get("metrics", {}))
    description = {
        "model": architecture.model_dump(by_alias=True, mode="json"),
        "data": spec.data.model_dump(by_alias=True, mode="json", exclude_none=True),
        "method": spec.method.model_dump(by_alias=True, mode="json"),
        "job": {"name": identity.name, "uid": identity.uid, "specDigest": identity.spec_digest},
        "sha256": ref.digest,
        "metrics": metrics,
        "updates": [{"round": line["round"], "digests": line["updates"]} for line in history],
        **described,
    }
    write_json(directory / "model.json", description)
    return Result(path, ref.digest, metrics)
