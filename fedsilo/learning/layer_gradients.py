"""Gradients of single examples in one layer, from what it took and what came back: norms and weighted sums.

Norms come from products of inputs and output gradients (Goodfellow, "Efficient per-example gradient computations",
2015; Bu et al., "Scalable and efficient training of large convolutional neural networks with differential privacy",
NeurIPS 2022), or of one example's gradient at a time where that takes fewer operations, so that those of a whole batch
are never there at once. What came back serves for the weighted sum too, without a second pass through the network (Bu
et al., "Differentially private optimization on large model at small cost", ICML 2023).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight
from typing_extensions import override

CHUNK_NUMBERS = 1 << 22
"""Numbers that inputs are unfolded to at once."""


@dataclass(frozen=True)
class CallGradients:
    """What one call of a layer took and what came back to it.

    :param inputs: (n, ...), of n examples.
    :param outputs: (n, ...), gradient of the loss by its outputs.
    """

    inputs: Tensor
    outputs: Tensor


class LayerGradients(ABC):
    """Gradients of a batch's examples by the parameters of one layer, which may have been called several times.

    :param parameters: of which gradients are wanted.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters

    @abstractmethod
    def squares(self) -> Tensor:
        """(n,) squared norms, in double precision."""

    @abstractmethod
    def add_weighted(self, totals: Sequence[Tensor], factors: Tensor) -> None:
        """Add the sum of the examples' gradients, each times its factor.

        :param totals: what is added to, for each of `parameters`.
        :param factors: (n,)
        """

    @abstractmethod
    def mask(self, counted: Tensor) -> LayerGradients:
        """Gradients of which those of other examples are zero.

        :param counted: (n,) bool.
        """

    @abstractmethod
    def plus(self, other: Any) -> LayerGradients:
        """Gradients with those of other calls of the layer.

        :param other: of the same class.
        """


class ProductGradients(LayerGradients):
    """Gradients that are made of what the layer's calls took and what came back to them, which stay for that."""

    def __init__(self, layer: Any, calls: Sequence[CallGradients]) -> None:
        super().__init__(trained_parameters(layer))
        self.layer, self.calls = layer, calls

    @override
    def mask(self, counted: Tensor) -> LayerGradients:
        calls = [
            CallGradients(with_zeros(each.inputs, counted), with_zeros(each.outputs, counted))
            for each in self.calls
        ]
        return type(self)(self.layer, calls)

    @override
    def plus(self, other: ProductGradients) -> LayerGradients:
        return type(self)(self.layer, [*self.calls, *other.calls])


class MatrixGradients(ProductGradients):
    """Gradients of linear layers and convolutions: sums over positions of products of two vectors."""

    @override
    def squares(self) -> Tensor:
        weight, bias = self.layer.weight, self.layer.bias
        found = torch.zeros(len(self.calls[0].inputs), dtype=torch.float64, device=weight.device)
        if weight.requires_grad:
            found += self._weight_squares()
        if bias is not None and bias.requires_grad:
            rows = sum(_by_position(self.layer, each.outputs).sum(dim=3).flatten(1) for each in self.calls)
            found += rows.double().square().sum(dim=1)  # type: ignore[union-attr]
        return found

    @override
    def add_weighted(self, totals: Sequence[Tensor], factors: Tensor) -> None:
        calls = [CallGradients(each.inputs, _scaled_rows(each.outputs, factors)) for each in self.calls]
        totals_by_parameter = iter(totals)
        if self.layer.weight.requires_grad:
            _add_weight_gradient(next(totals_by_parameter), self.layer, calls)
        if self.layer.bias is not None and self.layer.bias.requires_grad:
            total = next(totals_by_parameter)
            for each in calls:
                total += _by_position(self.layer, each.outputs).sum(dim=(0, 3)).reshape(total.shape)

    def _weight_squares(self) -> Tensor:
        """Inner products of positions take fewer operations where there are few."""
        rows, columns = len(self.layer.weight) // _groups(self.layer), self.layer.weight[0].numel()
        positions = sum(each.outputs[0].numel() // len(self.layer.weight) for each in self.calls)
        n = len(self.calls[0].inputs)
        # Twice, since they are of double precision.
        if 2 * positions * (rows + columns) >= rows * columns:
            norms = [torch.linalg.vector_norm(self._single_weight_gradient(place)) for place in range(n)]
            return torch.stack(norms).double().square()
        size = max(1, CHUNK_NUMBERS // (_groups(self.layer) * columns * positions))
        parts = [_examples(self.calls, slice(i, i + size)) for i in range(0, n, size)]
        return torch.cat([_product_squares(self.layer, each) for each in parts])

    def _single_weight_gradient(self, place: int) -> Tensor:
        return _weight_gradient(self.layer, _examples(self.calls, slice(place, place + 1)))


class EmbeddingGradients(ProductGradients):
    """Gradients of tables of vectors: each row has the sum of what came back where it was looked up."""

    @override
    def squares(self) -> Tensor:
        codes, rows = self._codes(), self._rows()
        n, height = len(codes), self.layer.num_embeddings
        keys = codes + height * torch.arange(n, device=codes.device).unsqueeze(1)
        found, places = keys.flatten().unique(return_inverse=True)
        sums = rows.new_zeros(len(found), rows.shape[-1]).index_add_(0, places, rows.flatten(0, 1))
        squares = torch.zeros(n, dtype=torch.float64, device=rows.device)
        return squares.index_add_(0, found // height, sums.double().square().sum(dim=1))

    @override
    def add_weighted(self, totals: Sequence[Tensor], factors: Tensor) -> None:
        rows = _scaled_rows(self._rows(), factors).flatten(0, 1)
        totals[0].index_add_(0, self._codes().flatten(), rows)

    def _codes(self) -> Tensor:
        """Numbers of the rows that were looked up, (n, lookups)."""
        return torch.cat([each.inputs.flatten(1).long() for each in self.calls], dim=1)

    def _rows(self) -> Tensor:
        """(n, lookups, width), zeros where padding was looked up."""
        width = self.layer.embedding_dim
        rows = torch.cat([each.outputs.reshape(len(each.outputs), -1, width) for each in self.calls], dim=1)
        if self.layer.padding_idx is None:
            return rows
        return rows.masked_fill((self._codes() == self.layer.padding_idx).unsqueeze(2), 0.0)


def trained_parameters(layer: nn.Module) -> list[nn.Parameter]:
    """Parameters of the layer itself, not of those inside, that have gradients."""
    return [each for each in layer.parameters(recurse=False) if each.requires_grad]


def _examples(calls: Sequence[CallGradients], places: slice) -> list[CallGradients]:
    return [CallGradients(each.inputs[places], each.outputs[places]) for each in calls]


def _scaled_rows(rows: Tensor, factors: Tensor) -> Tensor:
    return rows * factors.to(rows.dtype).reshape(-1, *[1] * (rows.dim() - 1))


def with_zeros(rows: Tensor, counted: Tensor) -> Tensor:
    """Zeros in place of the rows that do not count; codes stay."""
    if not rows.is_floating_point():
        return rows
    return torch.where(counted.reshape(-1, *[1] * (rows.dim() - 1)), rows, 0.0)


def _total(terms: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, terms)


def _groups(layer: Any) -> int:
    groups: int = getattr(layer, "groups", 1)
    return groups


def _by_position(layer: Any, rows: Tensor) -> Tensor:
    """Inputs of a linear layer, or outputs of any, as (n, groups, vector, positions)."""
    if isinstance(layer, nn.Linear):
        return rows.reshape(len(rows), 1, -1, rows.shape[-1]).mT
    groups = layer.groups
    return rows.reshape(len(rows), groups, rows.shape[1] // groups, -1)


def _unfolded_inputs(layer: Any, inputs: Tensor) -> Tensor:
    """What a layer multiplies at each position, (n, groups, columns of its weight, positions)."""
    if isinstance(layer, nn.Linear):
        return _by_position(layer, inputs)
    x, axes = _padded_inputs(layer, inputs), len(layer.kernel_size)
    for axis, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        x = x.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    positions = math.prod(x.shape[2 : 2 + axes])
    x = x.permute(0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    return x.reshape(len(x), layer.groups, -1, positions)


def _padded_inputs(layer: Any, inputs: Tensor) -> Tensor:
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)


def _product_squares(layer: Any, calls: Sequence[CallGradients]) -> Tensor:
    """(n,) squared norms of the weight's gradients: sum over pairs of positions of both vectors' inner products.

    In double precision, since what came back at many positions may cancel.
    """
    taken = torch.cat([_unfolded_inputs(layer, each.inputs) for each in calls], dim=3).double()
    back = torch.cat([_by_position(layer, each.outputs) for each in calls], dim=3).double()
    return ((taken.mT @ taken) * (back.mT @ back)).sum(dim=(1, 2, 3)).clamp(min=0)


_CONVOLUTION_WEIGHTS: dict[int, Callable[..., Tensor]] = {
    1: conv1d_weight,
    2: conv2d_weight,
    3: conv3d_weight,
}


def _add_weight_gradient(total: Tensor, layer: Any, calls: Sequence[CallGradients]) -> None:
    """Add the sum of the examples' gradients by the weight; of a linear layer without a tensor of their own."""
    if isinstance(layer, nn.Linear):
        for call in calls:
            total.addmm_(call.outputs.flatten(0, -2).T, call.inputs.flatten(0, -2))
    else:
        total += _weight_gradient(layer, calls)


def _weight_gradient(layer: Any, calls: Sequence[CallGradients]) -> Tensor:
    """Sum of the examples' gradients by the weight."""
    return _total(list(_weight_gradients(layer, calls)))


def _weight_gradients(layer: Any, calls: Sequence[CallGradients]) -> Iterator[Tensor]:
    for call in calls:
        if isinstance(layer, nn.Linear):
            yield call.outputs.flatten(0, -2).T @ call.inputs.flatten(0, -2)
        else:
            of_axes = _CONVOLUTION_WEIGHTS[len(layer.kernel_size)]
            inputs, shape = _padded_inputs(layer, call.inputs), layer.weight.shape
            yield of_axes(inputs, shape, call.outputs, layer.stride, 0, layer.dilation, layer.groups)
