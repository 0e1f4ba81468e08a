"""The file that a job's weights begin from, `spec.model.initialWeights`: only the aggregator reads it.

It becomes a blob as it is, so that its digest is the one of the manifest wherever it appears: in the state, in the
tasks of silos that need it, and in the provenance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from numpy import isfinite

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.text import shortened_list
from fedsilo.errors import DataInvalid, FileDamaged, Problem
from fedsilo.files.durable import require_content
from fedsilo.methods.state import StoredTree
from fedsilo.wire import BlobRef, ModelSignature, TensorSpec, open_blob

MAX_SHOWN_DIFFERENCES = 6
"""Differences of tensors that a message lists."""


def initial_weights(spec: FederatedJobSpec, root: Path, directory: Path | None = None) -> StoredTree | None:
    """The job's initial weights, as their file has them; None where they are drawn from the job's seed.

    :param root: directory that relative paths start from.
    :param directory: of an aggregator; one that was there before has the file already.
    :raises DataInvalid: when there is no such file, or another one.
    """
    given = spec.model.initial_weights
    if given is None:
        return None
    path = root / given.path
    if directory is not None and (directory / "state.json").exists():
        held = directory / "blobs" / given.sha256
        path = held if held.exists() else path
    where = f"spec.model.initialWeights: {path}"
    if not path.is_file():
        raise DataInvalid(
            f"{where}: there is no such file; paths start from {root}, where the aggregator runs"
        )
    try:
        remedy = "state the digest of the file in sha256, or name the right file"
        require_content(path.resolve(), given.sha256, remedy)
    except FileDamaged as other:
        raise DataInvalid(f"spec.model.initialWeights: {other}") from None
    return StoredTree(BlobRef(given.sha256, path.stat().st_size), path)


def require_tensors_of(signature: ModelSignature, weights: StoredTree) -> None:
    """Return if a file holds exactly the tensors of the model, and finite ones.

    :param signature: of the whole model.
    :raises DataInvalid: naming the tensors that differ.
    """
    where = f"spec.model.initialWeights: {weights.path}"
    try:
        with open_blob(weights.path) as opened:
            found = dict(opened.specs)
            not_finite = [
                name
                for name, tensor in opened.items()
                if tensor.dtype.kind == "f" and not isfinite(tensor).all()
            ]
    except Problem as problem:
        raise DataInvalid(f"{where}: {problem.detail}") from None
    if not_finite:
        listed = ", ".join(shortened_list(not_finite, MAX_SHOWN_DIFFERENCES, "more tensors"))
        raise DataInvalid(
            f"{where}: has NaN or infinity in {listed}; training can begin with finite weights only, "
            "and a network has its constants from its factory: leave them out of the file"
        )
    expected = {tensor.name: tensor for tensor in signature.tensors}
    if differences := list(_differences(expected, found)):
        listed = "; ".join(shortened_list(differences, MAX_SHOWN_DIFFERENCES, "more differences"))
        raise DataInvalid(
            f"{where}: is not of the job's model: {listed}; use the weights of the same architecture and configuration"
        )


def _differences(expected: dict[str, TensorSpec], found: dict[str, TensorSpec]) -> Iterator[str]:
    for name, tensor in expected.items():
        if name not in found:
            yield f"tensor {name} is missing"
        elif found[name].shape != tensor.shape:
            yield f"tensor {name} has shape {list(found[name].shape)}, the model's {list(tensor.shape)}"
        elif found[name].dtype != tensor.dtype:
            yield f"tensor {name} is {found[name].dtype}, the model's {tensor.dtype}"
    for name in found:
        if name not in expected:
            yield f"tensor {name} is none of the model"
