"""A network as a document describes it, compared with the tensors of a file before it takes any memory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.api.python_reference import PYTHON
from fedsilo.errors import MethodError
from fedsilo.learning.made_models import CONCATENATED_MODEL, MADE_BY_METHODS, ConcatenatedConfig
from fedsilo.learning.models import build_model, build_module, without_memory
from fedsilo.learning.state_names import require_tensors
from fedsilo.wire.tensors import TensorSpec


def require_described(
    model: ModelSpec, data: DataSpec, task: LearningTaskSpec | None, specs: Mapping[str, TensorSpec]
) -> None:
    """Return if the network that is described has exactly these tensors; it is compared before it takes any memory.

    A factory in Python that cannot be called without memory is compared when its weights are loaded.

    :param specs: of a file's tensors, by name.
    :raises ManifestInvalid: as `build_module`.
    :raises MethodError: as `load_tree`, or as `build_module`.
    """
    try:
        blank = _blank_network(model, data, task, len(specs))
    except MethodError:
        if not _has_factory(model):
            raise
        return
    require_tensors(blank, specs)


def _blank_network(
    model: ModelSpec, data: DataSpec, task: LearningTaskSpec | None, tensors: int
) -> nn.Module:
    with without_memory():
        if model.name == CONCATENATED_MODEL:
            made = ConcatenatedConfig.model_validate(model.config)
            least = made.encoders * len(build_model(made.base, data, 0).encoder.state_dict())
            if least > tensors:  # before so many encoders are made
                raise MethodError(
                    f"model: {made.encoders} encoders have {least} tensors: the file has {tensors}; load it into the "
                    "architecture it came from"
                )
        return build_module(model, data, 0, task)


def _has_factory(model: ModelSpec) -> bool:
    if model.name in MADE_BY_METHODS:
        return str(model.config["base"]["name"]).startswith(PYTHON)
    return model.name.startswith(PYTHON)
