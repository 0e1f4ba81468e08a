"""Tensors of a network by the names that its state has for them, which need not be those of its modules.

Tensors travel under the names of the state. Hooks of a module may have it say others than its parameters have, as
wrappers do that leave out their own prefix; whatever looks a parameter up among a task's tensors asks here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.wire.tensors import TensorSpec

MemoryPlace = tuple[int, tuple[int, ...]]
"""What two tensors have in common that are one."""


def named_parameters(model: nn.Module, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters with their names in the state, in its order.

    :param remove_duplicate: a tensor that the state has twice, as tied weights are, comes once.
    """
    parameters = {memory_place(parameter): parameter for parameter in model.parameters()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        place = memory_place(tensor)
        if place in parameters:
            yield name, parameters[place]
            if remove_duplicate:
                del parameters[place]


def require_own_tensors(model: nn.Module) -> None:
    """Return if the state is made of the network's own tensors, and has all that learn.

    :raises MethodError: naming what cannot be loaded, or would be lost.
    """
    own = {memory_place(tensor) for tensor in (*model.parameters(), *model.buffers())}
    state = {name: memory_place(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
    for name, place in state.items():
        if place not in own:
            raise MethodError(
                f"model: state {name!r}: is no parameter or buffer of the network, so that nothing can be loaded into "
                "it; have hooks of the state rename its tensors only, and keep what else it needs in buffers"
            )
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and memory_place(parameter) not in state.values():
            raise MethodError(
                f"model: parameter {name!r}: learns and is not in the state under any name, so that it would be lost "
                "after each round; leave it in state_dict(), or set its requires_grad to False"
            )


def require_tensors(model: nn.Module, found: Mapping[str, np.ndarray | TensorSpec]) -> None:
    """Return if these are the model's own tensors, by names, shapes and dtypes.

    :raises MethodError: a missing or unexpected tensor, another shape or dtype.
    """
    state = model.state_dict()
    for name in sorted(found.keys() - state.keys()):
        raise MethodError(
            f"model: tensor {name!r}: is not in this model; load it into the architecture it came from"
        )
    for name, tensor in state.items():
        if name not in found:
            raise MethodError(
                f"model: tensor {name!r}: is missing; give all {len(state)} tensors of the model"
            )
        given, expected = found[name], dtype_name(tensor)
        if given.shape != tuple(tensor.shape):
            raise MethodError(f"model: tensor {name!r}: shape {given.shape}: give {tuple(tensor.shape)}")
        if given.dtype != expected:
            raise MethodError(f"model: tensor {name!r}: dtype {given.dtype}: give {expected}")


def dtype_name(tensor: Tensor) -> str:
    """Name of the tensor's type, as a signature has it."""
    return str(tensor.dtype).removeprefix("torch.")


def memory_place(tensor: Tensor) -> MemoryPlace:
    """Where the numbers of a tensor lie and their shape; of one without numbers, which object it is."""
    return tensor.data_ptr() or id(tensor), tuple(tensor.shape)
