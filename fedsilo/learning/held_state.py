"""All tensors of a network as they were: what computing changed of them, and how that is undone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class _HeldTensor:
    """One tensor, where its module has it, and what it held."""

    name: str
    module: nn.Module
    key: str
    tensor: Tensor
    copy: Tensor

    @property
    def now(self) -> Tensor | None:
        """What the module has in its place by now."""
        found: Tensor | None = getattr(self.module, self.key, None)
        return found


class HeldState:
    """Parameters and buffers of a network at one moment; those that are no part of its state as well."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held: list[_HeldTensor] = []
        self.renew()

    def renew(self) -> None:
        """Hold what the network has by now, in the memory of what was held before."""
        copies = {held.name: held.copy for held in self._held}
        self._held = []
        for path, module in self._model.named_modules():
            own = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
            for key, tensor in own:
                name = f"{path}.{key}" if path else key
                copy = _copy_of(tensor.detach(), copies.get(name))
                self._held.append(_HeldTensor(name, module, key, tensor, copy))

    def restore(self) -> None:
        """Undo whatever computing did to them, so that nothing of one example meets the next."""
        with torch.no_grad():
            for held in self._held:
                if held.now is not held.tensor:
                    setattr(held.module, held.key, held.tensor)
                held.tensor.copy_(held.copy)

    @property
    def changed_tensor(self) -> str | None:
        """Name of the first tensor that is another by now, or that is new; None if there is none."""
        for held in self._held:
            now = held.now
            if (
                now is None
                or now.shape != held.copy.shape
                or not _equal_elements(now.detach(), held.copy).all()
            ):
                return held.name
        names = {held.name for held in self._held}
        buffers = self._model.named_buffers(remove_duplicate=False)
        return next((name for name, _ in buffers if name not in names), None)


def _copy_of(tensor: Tensor, earlier: Tensor | None) -> Tensor:
    """A copy of the tensor, in the memory of an earlier one if there is one of its kind."""
    kinds = [(each.shape, each.dtype, each.device) for each in (tensor, earlier) if each is not None]
    if earlier is None or kinds[0] != kinds[1]:
        return tensor.clone()
    return earlier.copy_(tensor)


def _equal_elements(one: Tensor, other: Tensor) -> Tensor:
    """Where two tensors of one shape are equal, or neither is a number."""
    return (one == other) | (one.isnan() & other.isnan())
