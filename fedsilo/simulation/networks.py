"""Copies of a job's networks: a new one for each task of each silo, without building it anew."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

from torch import Tensor, nn

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.learning.models import build_module

Network = TypeVar("Network", bound=nn.Module)

SHARED_TYPES = (type, FunctionType, BuiltinFunctionType)
"""Types whose instances copies share, as deep copies do."""


class NetworkStore:
    """The networks of one job: each built once and then copied."""

    def __init__(self, data: DataSpec, task: LearningTaskSpec | None = None) -> None:
        self._data = data
        self._task = task
        self._copiers: dict[str, Callable[[], nn.Module]] = {}

    def new_network(self, architecture: ModelSpec) -> nn.Module:
        """A network of this architecture with arbitrary weights."""
        key = architecture.model_dump_json(include={"name", "config"})
        if key not in self._copiers:
            self._copiers[key] = copier(build_module(architecture, self._data, 0, self._task))
        return self._copiers[key]()


def copier(network: Network) -> Callable[[], Network]:
    """A function that makes copies of a network, each a deep copy of what it is now.

    `copy.deepcopy` walks through some hundred dictionaries of hooks that every network has; pickling does so in C, in
    a fifth of the time. A network that cannot be pickled and read again is copied in the slow way.
    """
    try:
        pickled = _PickledNetwork(network)
        pickled()
    except Exception:  # whatever a network's own code raises
        return lambda: copy.deepcopy(network)
    return pickled


class _PickledNetwork:
    """A network as pickled, with tensors, functions and classes beside it."""

    def __init__(self, network: nn.Module) -> None:
        self._beside: list[object] = []
        self._numbers: dict[int, int] = {}
        file = io.BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._put_beside  # type: ignore[method-assign]
        pickler.dump(network)
        self._pickled = file.getvalue()

    def __call__(self) -> Any:
        """A copy, in which what was one tensor, or one storage, still is one."""
        memo: dict[int, object] = {}
        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = lambda number: self._restored_item(number, memo)  # type: ignore[method-assign]
        return unpickler.load()

    def _put_beside(self, item: object) -> int | None:
        if not isinstance(item, (Tensor, *SHARED_TYPES)):
            return None
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self._beside)
            self._beside.append(item)
        return self._numbers[id(item)]

    def _restored_item(self, number: int, memo: dict[int, object]) -> object:
        item = self._beside[number]
        return copy.deepcopy(item, memo) if isinstance(item, Tensor) else item
