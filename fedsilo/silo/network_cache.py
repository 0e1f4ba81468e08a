"""The network of a trainer, kept from one task to the next: to build a large one takes longer than to load its weights.

A network that is used again must be the one that building it anew would give. All its weights are loaded with every
task. Whatever else it holds is compared with what it held when it was built, as pickle writes it: attributes, hooks,
buffers that are no part of its state. If anything differs, or cannot be written, the network is built again, and the
log says so once.

Pickle writes classes and functions by their names. Those without one, such as a class in a factory's body or a lambda,
are written as what they are made of: code, defaults, and what they have taken from around them.
"""

from __future__ import annotations

import io
import logging
import pickle
import sys
from collections.abc import Callable
from functools import cached_property
from types import CellType, CodeType, FunctionType, MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from typing_extensions import override

from fedsilo.api.job import ModelSpec
from fedsilo.api.python_import import error_summary
from fedsilo.learning.models import Model
from fedsilo.learning.state_names import memory_place

log = logging.getLogger("fedsilo.trainer")


class NetworkCache:
    """At most one network, which one task at a time uses; only for replies that are not kept beside the next task."""

    def __init__(self) -> None:
        self._network: tuple[ModelSpec, nn.Module, bytes] | None = None
        self._flags: dict[str, bool] = {}
        self._modes: dict[str, bool] = {}
        self._taken = False
        self._said = False

    def take(self, architecture: ModelSpec, build: Callable[[], nn.Module]) -> nn.Module:
        """The kept network with any weights, or a new one: where a task asks again, or it cannot be used again."""
        if self._taken:
            return build()
        self._taken = True
        if self._network is not None and self._network[0] == architecture:
            _, module, built = self._network
            self._reset(module)
            now, problem = _structure(module)
            if now == built:
                return module
            self._say_once(architecture, problem or "a task changes more of it than its weights")
        self._network = None
        module = build()
        structure, problem = _structure(module)
        if structure is None:
            self._say_once(architecture, problem)
        else:
            self._network = architecture, module, structure
            self._flags = {name: tensor.requires_grad for name, tensor in module.named_parameters()}
            self._modes = {name: part.training for name, part in module.named_modules()}
        return module

    def release(self) -> None:
        """The task is over: its gradients are not kept."""
        self._taken = False
        if self._network is not None:
            for tensor in self._network[1].parameters():
                tensor.grad = None

    def _say_once(self, architecture: ModelSpec, problem: str) -> None:
        if not self._said:
            self._said = True
            log.warning(
                "spec.model.name: %r: the network is built anew for every task, which takes time where it is large: %s",
                architecture.name,
                problem,
            )

    def _reset(self, module: nn.Module) -> None:
        """Undo what every task may do: frozen tensors, evaluation mode, and preprocessing of its own."""
        if isinstance(module, Model):
            del module.preprocessing  # which was a module among its modules
            module.preprocessing = None
        for name, tensor in module.named_parameters():
            tensor.requires_grad_(self._flags.get(name, True))
        for name, part in module.named_modules():
            part.training = self._modes.get(name, True)


class _StructurePickler(pickle.Pickler):
    """Writes a module with names in place of the tensors of its state."""

    def __init__(self, file: io.BytesIO, module: nn.Module) -> None:
        super().__init__(file, protocol=5)
        self._names = {
            memory_place(tensor): name for name, tensor in module.state_dict(keep_vars=True).items()
        }

    @override
    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        """What there is to compare of a tensor whose values are loaded with every task."""
        name = self._names.get(memory_place(obj)) if isinstance(obj, Tensor) else None
        if name is None or not isinstance(obj, Tensor):
            return None
        hooks = bool(obj._backward_hooks) or bool(getattr(obj, "_post_accumulate_grad_hooks", None))
        facts = (tuple(obj.shape), obj.stride(), obj.dtype, obj.device.type, obj.requires_grad, obj.is_leaf)
        return name, repr(facts), hooks, repr(sorted(vars(obj)))

    @override
    def reducer_override(self, obj: Any) -> Any:
        """What pickle does with an object, but for classes and functions that it would not find by their names."""
        found = _parts_of(obj)
        if found is None:
            return NotImplemented
        # What it is made of comes after it, for that may lead back to it.
        return _nothing_made, (type(obj).__name__, getattr(obj, "__qualname__", None)), found


_MADE_BY_PYTHON = frozenset(
    ("__dict__", "__weakref__", "__doc__", "_abc_impl", "__slotnames__", "__annotations_cache__")
)
"""Members that Python gives to a class for its own use, some of them when it is first pickled."""


def _nothing_made(*parts: object) -> None:
    """Stands where pickle would make an object again, which nothing here does."""


def _parts_of(obj: Any) -> tuple[object, ...] | None:
    """What a class, a function, a part of one or a network is made of; None of one that pickle knows how to write."""
    match obj:
        case FunctionType() if not _is_found_by_name(obj):
            return obj.__code__, obj.__defaults__, obj.__kwdefaults__, obj.__closure__, obj.__dict__
        case type() if not _is_found_by_name(obj):
            members = {name: value for name, value in vars(obj).items() if name not in _MADE_BY_PYTHON}
            return obj.__bases__, members
        case nn.Module() if is_parametrized(obj):  # which PyTorch lets nobody pickle
            return type(obj), vars(obj)
        case CodeType():
            signature = obj.co_argcount, obj.co_posonlyargcount, obj.co_kwonlyargcount, obj.co_flags
            return signature, obj.co_code, obj.co_consts, obj.co_names, obj.co_varnames, obj.co_freevars
        case CellType():
            return _content_of(obj)
        case staticmethod() | classmethod():
            return (obj.__func__,)
        case property():
            return obj.fget, obj.fset, obj.fdel
        case cached_property():
            return (obj.func,)
        case MappingProxyType():
            return (dict(obj),)
        case _:
            return None


def _content_of(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing was put into it yet
        return ()


def _is_found_by_name(obj: type | FunctionType) -> bool:
    """Whether module and name lead to this very class or function."""
    found: object = sys.modules.get(obj.__module__)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


def _structure(module: nn.Module) -> tuple[bytes | None, str]:
    """All of a module but the values of its state; None where that cannot be said, and why."""
    file = io.BytesIO()
    try:
        _StructurePickler(file, module).dump(module)
    except Exception as error:  # whatever a foreign module's own pickling raises
        return None, error_summary(error)
    return file.getvalue(), ""
