"""Gradients of single examples by parameters that are so few that those of all examples are made.

They are sums of what came back, so that neither that nor what a layer took stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.learning.layer_gradients import CallGradients, LayerGradients, trained_parameters, with_zeros


class RowGradients(LayerGradients):
    """Gradients by parameters that are so few that those of all examples are made.

    :param rows: (n, ...) by each parameter, as many numbers in each row as it has.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rows: Sequence[Tensor]) -> None:
        super().__init__(parameters)
        self.rows = rows

    @override
    def squares(self) -> Tensor:
        return reduce(torch.add, [each.flatten(1).double().square().sum(dim=1) for each in self.rows])

    @override
    def add_weighted(self, totals: Sequence[Tensor], factors: Tensor) -> None:
        for total, each in zip(totals, self.rows, strict=True):
            total += torch.tensordot(factors.to(each.dtype), each, dims=1).reshape(total.shape)

    @override
    def mask(self, counted: Tensor) -> LayerGradients:
        return RowGradients(self.parameters, [with_zeros(each, counted) for each in self.rows])

    @override
    def plus(self, other: RowGradients) -> LayerGradients:
        return RowGradients(self.parameters, list(map(torch.add, self.rows, other.rows)))


class NormGradients(RowGradients):
    """Gradients of scales and shifts after a normalisation."""

    def __init__(self, layer: Any, calls: Sequence[CallGradients]) -> None:
        rows = [
            reduce(torch.add, each) for each in zip(*(_norm_rows(layer, each) for each in calls), strict=True)
        ]
        super().__init__(trained_parameters(layer), rows)


class AddedGradients(RowGradients):
    """Gradients of a parameter that is added to what is computed of each example, such as positions of tokens.

    :param outputs: (n, ...), gradient of the loss by one sum with it.
    """

    def __init__(self, parameter: nn.Parameter, outputs: Tensor) -> None:
        super().__init__([parameter], [_summed_to(outputs, parameter.shape)])


def _norm_rows(layer: Any, call: CallGradients) -> list[Tensor]:
    """(n, *shape) by each parameter of a normalisation that is trained."""
    axes = call.outputs.dim()
    by_channel = not isinstance(layer, nn.LayerNorm | nn.RMSNorm)
    summed = tuple(range(2, axes) if by_channel else range(1, axes - layer.weight.dim()))
    found = []
    for name, parameter in layer.named_parameters(recurse=False):
        if parameter.requires_grad:
            each = call.outputs
            if name == "weight":
                each = each * _normalised_inputs(layer, call.inputs)
            found.append(each.sum(dim=summed) if summed else each)
    return found


def _normalised_inputs(layer: Any, x: Tensor) -> Tensor:
    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return functional.rms_norm(x, list(layer.normalized_shape), eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(x, layer.num_groups, eps=layer.eps)
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return functional.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps)
    return functional.instance_norm(x, eps=layer.eps)


def _summed_to(rows: Tensor, shape: torch.Size) -> Tensor:
    """(n, numbers of the shape): sums of each of n rows over the axes that broadcasting to it has stretched."""
    own = (1,) * (rows.dim() - 1 - len(shape)) + tuple(shape[max(0, 1 + len(shape) - rows.dim()) :])
    return rows.sum_to_size(len(rows), *own).reshape(len(rows), -1)
