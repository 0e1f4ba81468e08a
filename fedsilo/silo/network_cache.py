"""The network of a trainer, kept from one task to the next: to build a large one takes longer than to load its weights.

A network that is used again must be the one that building it anew would give. All its weights are loaded with every
task. Whatever else it holds is compared with what it held when it was built, as pickle writes it: attributes, hooks,
buffers that are no part of its state. If anything differs, or cannot be written, the network is built again.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from itertools import chain

from torch import Tensor, nn
from typing_extensions import override

from fedsilo.api.job import ModelSpec
from fedsilo.learning.models import Model


class NetworkCache:
    """At most one network, which one task at a time uses; only for replies that are not kept beside the next task."""

    def __init__(self) -> None:
        self._network: tuple[ModelSpec, nn.Module, bytes] | None = None
        self._flags: dict[str, bool] = {}
        self._modes: dict[str, bool] = {}
        self._taken = False

    def take(self, architecture: ModelSpec, build: Callable[[], nn.Module]) -> nn.Module:
        """The kept network with any weights, or a new one: where a task asks again, or it cannot be used again."""
        if self._taken:
            return build()
        self._taken = True
        if self._network is not None and self._network[0] == architecture:
            _, module, built = self._network
            self._reset(module)
            if _structure(module) == built:
                return module
        self._network = None
        module = build()
        structure = _structure(module)
        if structure is not None:
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
        state = module.state_dict().keys()
        tensors = chain(
            module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
        )
        self._names = {id(tensor): name for name, tensor in tensors if name in state}

    @override
    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        """What there is to compare of a tensor whose values are loaded with every task."""
        name = self._names.get(id(obj))
        if name is None or not isinstance(obj, Tensor):
            return None
        hooks = bool(obj._backward_hooks) or bool(getattr(obj, "_post_accumulate_grad_hooks", None))
        facts = (tuple(obj.shape), obj.stride(), obj.dtype, obj.device.type, obj.requires_grad, obj.is_leaf)
        return name, repr(facts), hooks, repr(sorted(vars(obj)))


def _structure(module: nn.Module) -> bytes | None:
    """All of a module but the values of its state; None where that cannot be said."""
    file = io.BytesIO()
    try:
        _StructurePickler(file, module).dump(module)
    except Exception:  # whatever a foreign module's own pickling raises
        return None
    return file.getvalue()
