"""Constants of a network: buffers that hold NaN or infinity when it is built, such as a causal mask of minus infinity.

What silos train and send is finite from the first round to the last, so that NaN and infinity always say that training
diverged. A buffer that begins with one of them is therefore no part of the model's state, as if it were registered with
`persistent=False`: every network of the architecture has it from its factory, and nothing changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError

_AS_BUILT = "constants_as_built"
"""Attribute of a module that has constants: their values, by their names in it."""

REMEDY = "begin with finite numbers, or register a constant with register_buffer(..., persistent=False)"


def set_constants_apart(network: nn.Module) -> None:
    """Take every buffer that is not finite out of the network's state, once it is built."""
    for module in network.modules():
        found = {
            name: buffer
            for name, buffer in module.named_buffers(recurse=False)
            if not _is_finite(buffer) and name in module.state_dict()
        }
        if not found or isinstance(module, torch.jit.ScriptModule):  # of which all buffers are in the state
            continue
        for name, buffer in found.items():
            module.register_buffer(name, buffer, persistent=False)
        copies = {name: buffer.detach().clone() for name, buffer in found.items()}
        setattr(module, _AS_BUILT, getattr(module, _AS_BUILT, {}) | copies)


def require_constants(network: nn.Module) -> None:
    """Return if the network's constants are as they were built.

    :raises MethodError: naming one that is not.
    """
    for name, built, now in _constants(network):
        if not _is_same(built, now):
            raise MethodError(
                f"model: buffer {name!r}: held NaN or infinity when it was built, and has changed since: {REMEDY}"
            )


def without_constants(network: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of another network of this architecture without those that are its constants too."""
    constants = {name: built for name, built, _ in _constants(network)}
    return {
        name: tensor
        for name, tensor in state.items()
        if name not in constants or not _is_same(constants[name], tensor)
    }


def require_finite_state(network: nn.Module) -> None:
    """Return if a network that was just built has finite numbers only.

    :raises MethodError: naming a tensor that has not.
    """
    for name, tensor in network.state_dict().items():
        if not _is_finite(tensor):
            raise MethodError(f"model: tensor {name!r}: holds NaN or infinity when it is built; {REMEDY}")


def _constants(network: nn.Module) -> Iterator[tuple[str, Tensor, Any]]:
    """Name, value as built, and present value of each."""
    for path, module in network.named_modules():
        for name, built in getattr(module, _AS_BUILT, {}).items():
            yield f"{path}.{name}".lstrip("."), built, getattr(module, name, None)


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.device.type == "meta":
        return True
    # A sum with a NaN or an infinity is not finite, and costs less than testing every number.
    return bool(tensor.sum().isfinite() or tensor.isfinite().all())


def _is_same(built: Tensor, now: Any) -> bool:
    if not isinstance(now, Tensor) or (now.shape, now.dtype) != (built.shape, built.dtype):
        return False
    one, other = built.cpu(), now.detach().cpu()
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
