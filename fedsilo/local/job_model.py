"""A job's model as far as it can be looked at without data: built here, if this machine can build it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.python_reference import PYTHON
from fedsilo.errors import FedsiloError, ImportNotAllowed

if TYPE_CHECKING:
    from torch import nn


def model_without_data(spec: FederatedJobSpec) -> nn.Module | None:
    """The network, of which only names, shapes and types count; None where this machine cannot build it.

    :raises ImportNotAllowed: when it would import what nobody has allowed.
    """
    if find_spec("torch") is None:
        return None
    from fedsilo.learning.models import blank_model, build_module
    from fedsilo.tasks.registry import bind

    try:
        if spec.model.name.startswith(PYTHON):
            return build_module(spec.model, spec.data, seed=0, task=spec.task)
        return blank_model(spec.model, bind(spec.task, spec.data))
    except ImportNotAllowed:
        raise
    except FedsiloError:  # of a package that is not here, and need not be; the run says so
        return None
