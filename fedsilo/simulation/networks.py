"""Networks of one job: built once, and copied for whoever needs one."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType

from torch import Tensor, nn

from fedsilo.learning.models import Model, build_model
from fedsilo.manifests.job import DataSpec, ModelSpec

SHARED = (type, FunctionType, BuiltinFunctionType, ModuleType)
"""What copies have in common, as in a deep copy."""


class Networks:
    """The networks of one job: built once, and copied for whoever needs one."""

    def __init__(self, data: DataSpec) -> None:
        self._data = data
        self._copiers: dict[str, Callable[[], Model]] = {}

    def new(self, architecture: ModelSpec) -> Model:
        """A network of this architecture, whose weights are of no account."""
        key = architecture.model_dump_json()
        if key not in self._copiers:
            self._copiers[key] = copier(build_model(architecture, self._data, seed=0))
        return self._copiers[key]()


def copier(network: Model) -> Callable[[], Model]:
    """What makes copies of a network, each a deep copy of what it is now.

    `copy.deepcopy` walks through some hundred dictionaries of hooks that every network has; pickling does so in C, a
    fifth of the time. A network that cannot be pickled is copied in the slow way.
    """
    try:
        return _Pickled(network)
    except (pickle.PicklingError, TypeError, AttributeError):
        return lambda: copy.deepcopy(network)


class _Pickled:
    """A network as pickled, with tensors, functions and classes beside it."""

    def __init__(self, network: Model) -> None:
        self._beside: list[object] = []
        self._numbers: dict[int, int] = {}
        file = io.BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._put_beside  # type: ignore[method-assign]
        pickler.dump(network)
        self._pickled = file.getvalue()

    def __call__(self) -> Model:
        """A copy, in which what was one tensor is one tensor."""
        copies: dict[int, object] = {}

        def taken(number: int) -> object:
            if number not in copies:
                copies[number] = _copied(self._beside[number])
            return copies[number]

        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = taken  # type: ignore[method-assign]
        network: Model = unpickler.load()
        return network

    def _put_beside(self, item: object) -> int | None:
        if not isinstance(item, (Tensor, *SHARED)):
            return None
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self._beside)
            self._beside.append(item)
        return self._numbers[id(item)]


def _copied(item: object) -> object:
    if isinstance(item, nn.Parameter):
        return nn.Parameter(item.detach().clone(), item.requires_grad)
    return item.detach().clone() if isinstance(item, Tensor) else item
