"""Opening a model that a federation produced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from torch import nn

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.common import MAX_SILOS, Fields
from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.errors import DataInvalid, ManifestInvalid, MethodError
from fedsilo.learning.models import CONCATENATED, GATED, build_module, load_tree, with_preprocessing
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.preprocessing_numbers import from_document
from fedsilo.wire.blob import open_blob


def load_model(path: str | Path, allow_imports: Collection[str] = ()) -> nn.Module:
    """The trained model of a `model.safetensors`, or a silo's own, in evaluation mode, on the CPU.

    The `.json` of that name beside it names the architecture and the digest of the tensors. The weights are copies, so
    the file may go.

    A `python:` architecture is in the job's own package, which must be installed, and trusted: it is imported if it is
    allowed.

    :param allow_imports: modules, or `module:attribute`, that the description may name.
    :raises ManifestInvalid: one of the two files is missing, or they do not belong together.
    :raises ImportNotAllowed: the architecture, or the learning task, is not among those.
    :raises MethodError: the file's tensors are not those of the architecture.
    """
    with looking_at(Path(path).with_suffix(".json"), allow_imports):
        return open_model(Path(path))


def open_model(
    tensors: Path, architecture: ModelSpec | None = None, task: LearningTaskSpec | None = None
) -> nn.Module:
    """What `load_model` gives.

    :param architecture: of the job, with its learning task, where somebody else than the description names them.
    """
    if not tensors.is_file():
        raise ManifestInvalid(f"model {tensors}: there is no such file; give the path of a model.safetensors")
    description = _description(tensors.with_suffix(".json"))
    _require_digest(tensors, description["sha256"])
    described = description["model"]
    if architecture is None:
        task = description["task"]
    else:
        described = _of_architecture(tensors, described, architecture)
    model = build_module(described, description["data"], 0, task)
    try:
        with open_blob(tensors) as mapped:
            load_tree(model, mapped.tree())
    except MethodError as misfit:
        if architecture is None:
            raise
        raise ManifestInvalid(
            f"model {tensors}: is not of the manifest's spec.model, {architecture.name} as it is configured there "
            f"({misfit}); name the manifest of the job that trained this model"
        ) from None
    if description["preprocessing"] is not None:
        with_preprocessing(model, Preprocessing(description["preprocessing"]))
    return model.eval()


def _of_architecture(path: Path, described: ModelSpec, architecture: ModelSpec) -> ModelSpec:
    """What is described with the job's architecture in its place: itself, or a model that a method made of it.

    :raises ManifestInvalid: when another one is described.
    """
    if described.name in _MADE:
        base = ModelSpec.model_validate(described.config["base"])
        inner = _of_architecture(path, base, architecture).described()
        return described.model_copy(update={"config": {**described.config, "base": inner}})
    if described.name != architecture.name:
        raise ManifestInvalid(
            f"model {path}: model: {described.name}: the manifest's spec.model.name is {architecture.name}; name the "
            "manifest of the job that trained this model"
        )
    return architecture


class _Concatenated(Fields):
    encoders: int = Field(ge=1, le=MAX_SILOS)
    base: ModelSpec


class _Gated(Fields):
    mixes: Literal["logits", "probabilities"]
    base: ModelSpec


_MADE: Mapping[str, type[_Concatenated | _Gated]] = {CONCATENATED: _Concatenated, GATED: _Gated}


def _model_of(document: object) -> ModelSpec:
    """The architecture of a description.

    :raises ValueError: also where a method makes none of this form.
    """
    model = ModelSpec.model_validate(document)
    if model.name in _MADE and (base := _MADE[model.name].model_validate(model.config).base).name in _MADE:
        raise ValueError(f"model: {model.name}: no method makes one of models that are {base.name}")
    return model


def _description(path: Path) -> dict[str, Any]:
    try:
        text = json.loads(path.read_bytes())
        # The network does not depend on the dataset's name.
        data = DataSpec.model_validate({"dataset": path.stem, **text["data"]})
        numbers = text.get("preprocessing")
        return {
            "model": _model_of(text["model"]),
            "data": data,
            "task": LearningTaskSpec.model_validate(text["task"]) if "task" in text else None,
            "preprocessing": None if numbers is None else from_document(numbers, data.input_shape[0]),
            "sha256": str(text["sha256"]),
        }
    except FileNotFoundError:
        raise ManifestInvalid(
            f"model {path}: there is no such file; keep what the job wrote beside its tensors"
        ) from None
    except KeyError as missing:
        raise ManifestInvalid(
            f"model {path}: {missing}: is missing; use the {path.name} that the job wrote"
        ) from None
    except (ValueError, TypeError, ValidationError, DataInvalid) as wrong:
        reason = str(wrong).replace("\n", " ")
        raise ManifestInvalid(f"model {path}: {reason}; use the {path.name} that the job wrote") from None


def _require_digest(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ManifestInvalid(
            f"model {path}: sha256: {found}: {path.stem}.json says {expected}; fetch both files of one job again"
        )
