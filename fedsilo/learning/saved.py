"""Opening a model that a federation produced."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.errors import DataInvalid, ManifestInvalid
from fedsilo.learning.models import build_module, load_tree, with_preprocessing
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.preprocessing_numbers import from_document
from fedsilo.wire.blob import open_blob


def load_model(path: str | Path) -> nn.Module:
    """The trained model of a `model.safetensors`, or a silo's own, in evaluation mode, on the CPU.

    The `.json` of that name beside it names the architecture and the digest of the tensors. The weights are copies, so
    the file may go.

    A `python:` architecture imports the job's own package, which must be installed, and trusted.

    :raises ManifestInvalid: one of the two files is missing, or they do not belong together.
    :raises MethodError: the file's tensors are not those of the architecture.
    """
    tensors = Path(path)
    if not tensors.is_file():
        raise ManifestInvalid(f"model {tensors}: there is no such file; give the path of a model.safetensors")
    description = _description(tensors.with_suffix(".json"))
    _require_digest(tensors, description["sha256"])
    model = build_module(description["model"], description["data"], 0, description["task"])
    with open_blob(tensors) as mapped:
        load_tree(model, mapped.tree())
    if description["preprocessing"] is not None:
        with_preprocessing(model, Preprocessing(description["preprocessing"]))
    return model.eval()


def _description(path: Path) -> dict[str, Any]:
    try:
        text = json.loads(path.read_bytes())
        # The network does not depend on the dataset's name.
        data = DataSpec.model_validate({"dataset": path.stem, **text["data"]})
        numbers = text.get("preprocessing")
        return {
            "model": ModelSpec.model_validate(text["model"]),
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
