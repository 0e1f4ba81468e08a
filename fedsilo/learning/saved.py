"""Opening a model that a federation produced."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from torch import nn

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.api.messages import escaped_text, first_fault
from fedsilo.api.text import first_line
from fedsilo.errors import DataInvalid, ImportNotAllowed, ManifestInvalid, MethodError
from fedsilo.files.json_files import MAX_DESCRIPTION_BYTES, JsonError, read_document
from fedsilo.files.plain_files import open_plain
from fedsilo.learning.described import require_described
from fedsilo.learning.made_models import CONFIGS
from fedsilo.learning.models import build_module, load_tree, with_preprocessing
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.preprocessing_numbers import from_document
from fedsilo.tasks.registry import bind
from fedsilo.tasks.regression import RegressionTask
from fedsilo.wire.blob import map_blob


def load_model(path: str | Path, allow_imports: Collection[str] = ()) -> nn.Module:
    """The trained model of a `model.safetensors`, or a silo's own, in evaluation mode, on the CPU.

    The `.json` of that name beside it names the architecture and the digest of the tensors. The weights are copies, so
    the file may go. The network is compared with the file before it takes memory, and nothing is read that is no plain
    file of bounded size.

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
    """Open a trained model from its files, as `load_model` describes it.

    :param architecture: of the job, with its learning task, where somebody else than the description names them.
    """
    with _open_tensors(tensors) as file, map_blob(tensors, file) as mapped:
        description = _description(tensors.with_suffix(".json"))
        named, task = description.model, description.task if architecture is None else task
        if architecture is not None:
            named = _of_architecture(tensors, named, architecture)
        with _fitting(tensors, architecture):
            with _translate_build_errors(tensors):
                require_described(named, description.data, task, mapped.specs)
            _require_digest(tensors, file, description.sha256)
            model = build_module(named, description.data, 0, task)
            load_tree(model, mapped.tree())
    if description.preprocessing is not None:
        with_preprocessing(model, Preprocessing(description.preprocessing))
    return model.eval()


@contextmanager
def _fitting(tensors: Path, architecture: ModelSpec | None) -> Iterator[None]:
    """A block in which a misfit is the manifest's fault where that names the architecture."""
    try:
        yield
    except MethodError as misfit:
        if architecture is None:
            raise
        raise ManifestInvalid(
            f"model {tensors}: is not of the manifest's spec.model, {architecture.name} as it is configured there "
            f"({misfit}); name the manifest of the job that trained this model"
        ) from None


def _of_architecture(path: Path, described: ModelSpec, architecture: ModelSpec) -> ModelSpec:
    """What is described with the job's architecture in its place: itself, or a model that a method made of it.

    :raises ManifestInvalid: when another one is described.
    """
    if described.name in CONFIGS:
        base = ModelSpec.model_validate(described.config["base"])
        inner = _of_architecture(path, base, architecture).description_fields()
        return described.model_copy(update={"config": {**described.config, "base": inner}})
    if described.name != architecture.name:
        raise ManifestInvalid(
            f"model {path}: model: {described.name}: the manifest's spec.model.name is {architecture.name}; name the "
            "manifest of the job that trained this model"
        )
    return architecture


def _model_of(document: object) -> ModelSpec:
    """The architecture of a description.

    :raises ValueError: also where a method makes none of this form.
    """
    model = ModelSpec.model_validate(document)
    if model.name in CONFIGS:
        CONFIGS[model.name].model_validate(model.config)
    return model


def read_description(path: Path) -> dict[str, Any]:
    """What is said of a model in the `.json` beside it, as it stands there.

    :raises ManifestInvalid: when it cannot be read, or is no JSON object.
    """
    try:
        document = read_document(path, most=MAX_DESCRIPTION_BYTES)
    except FileNotFoundError:
        raise ManifestInvalid(
            f"model {path}: there is no such file; keep what the job wrote beside its tensors"
        ) from None
    except OSError as error:
        raise ManifestInvalid(
            f"model {path}: {error.strerror}; use the {path.name} that the job wrote"
        ) from None
    except JsonError as wrong:
        raise ManifestInvalid(f"model {path}: {wrong}; use the {path.name} that the job wrote") from None
    if not isinstance(document, dict):
        raise ManifestInvalid(f"model {path}: is no JSON object; use the {path.name} that the job wrote")
    return document


@dataclass(frozen=True)
class _Description:
    """What of a description makes the network."""

    model: ModelSpec
    data: DataSpec
    task: LearningTaskSpec | None
    preprocessing: Mapping[str, np.ndarray] | None
    sha256: str


def _description(path: Path) -> _Description:
    document = read_description(path)
    try:
        # The network does not depend on the dataset's name.
        data = DataSpec.model_validate({"dataset": path.stem, **document["data"]})
        numbers = document.get("preprocessing")
        task = LearningTaskSpec.model_validate(document["task"]) if "task" in document else None
        return _Description(
            model=_model_of(document["model"]),
            data=data,
            task=task,
            preprocessing=None if numbers is None else _numbers(numbers, data, task),
            sha256=str(document["sha256"]),
        )
    except KeyError as missing:
        raise ManifestInvalid(
            f"model {path}: {missing}: is missing; use the {path.name} that the job wrote"
        ) from None
    except ValidationError as error:
        reason = first_fault(error)
    except (ValueError, TypeError, OverflowError, RecursionError, DataInvalid) as wrong:
        reason = escaped_text(str(wrong))
    raise ManifestInvalid(f"model {path}: {reason}; use the {path.name} that the job wrote")


def _numbers(document: object, data: DataSpec, task: LearningTaskSpec | None) -> Mapping[str, np.ndarray]:
    regression = task is not None and task.name == RegressionTask.name
    return from_document(document, data.input_shape[0], bind(task, data).outputs if regression else 0)


@contextmanager
def _translate_build_errors(tensors: Path) -> Iterator[None]:
    """A block that makes a network as it is described; whatever is wrong with that is told in one line."""
    try:
        yield
    except ValidationError as error:
        reason = f"spec.model.config: {first_fault(error)}"
    except ImportNotAllowed:
        raise
    except ManifestInvalid as wrong:
        reason = first_line(wrong)
    else:
        return
    name = tensors.with_suffix(".json").name
    raise ManifestInvalid(f"model {tensors}: {name}: {reason}")


def _open_tensors(tensors: Path) -> BufferedReader:
    """The file of the tensors, of which no more are there than memory has room for."""
    try:
        file = open_plain(tensors, links=True)
    except FileNotFoundError:
        raise ManifestInvalid(
            f"model {tensors}: there is no such file; give the path of a model.safetensors"
        ) from None
    except OSError as error:
        raise ManifestInvalid(
            f"model {tensors}: {error.strerror}; give the path of a model.safetensors"
        ) from None
    size, room = os.fstat(file.fileno()).st_size, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > room:
        file.close()
        raise ManifestInvalid(
            f"model {tensors}: has {size} bytes, and this machine {room} of memory; use a larger one"
        )
    return file


def _require_digest(path: Path, file: BufferedReader, expected: str) -> None:
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ManifestInvalid(
            f"model {path}: sha256: {found}: {path.stem}.json says {escaped_text(expected)}; fetch both files of one "
            "job again"
        )
