"""Norms and clipped sums of a batch's gradients by one forward and one backward pass, layer by layer.

Hooks note what each layer takes. The backward pass goes to the layers' outputs only; gradients by parameters follow
from both (`fedsilo.learning.layer_gradients`). That holds where a parameter reaches the loss through calls of its own
layer alone, which the graph of each pass says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fedsilo.learning.layer_gradients import (
    CallGradients,
    LayerGradients,
    gradients_class,
    trained_parameters,
)


@dataclass(frozen=True)
class BatchGradients:
    """Gradients of a batch's examples by all parameters, as their layers have them.

    :param parameters: those that are trained, in the order of all sums.
    """

    parameters: Sequence[nn.Parameter]
    layers: Sequence[LayerGradients]

    def squares(self) -> Tensor:
        """(n,) squared norms over all parameters, in double precision."""
        return torch.stack([each.squares() for each in self.layers]).sum(dim=0)

    def split(self, gradients: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors of each layer, given those by each parameter."""
        of_parameters = dict(zip(map(id, self.parameters), gradients, strict=True))
        return [[of_parameters[id(parameter)] for parameter in layer.parameters] for layer in self.layers]

    def add_weighted(self, sums: Sequence[Tensor], factors: Tensor) -> None:
        """Add the sum of the examples' gradients, each times its factor, by each parameter.

        :param factors: (n,)
        """
        for layer, totals in zip(self.layers, self.split(sums), strict=True):
            for total, each in zip(totals, layer.weighted_sum(factors), strict=True):
                total += each

    def add_clipped(self, sums: Sequence[Tensor], norm: float) -> None:
        """Add sum_i min(1, C / |g_i|) g_i to the sums; of a gradient that is not finite nothing."""
        if not self.layers:
            return
        norms = self.squares().sqrt()
        finite = norms.isfinite()
        gradients = self if finite.all() else self._of(finite)
        gradients.add_weighted(sums, (norm / norms.clamp(min=norm)).nan_to_num(0.0))

    def _of(self, counted: Tensor) -> BatchGradients:
        """Gradients of which those of other examples are zero."""
        layers = []
        for layer in self.layers:
            calls = [
                CallGradients(_with_zeros(each.inputs, counted), _with_zeros(each.outputs, counted))
                for each in layer.calls
            ]
            layers.append(type(layer)(layer.layer, calls))
        return BatchGradients(self.parameters, layers)


@dataclass(frozen=True)
class _LayerCall:
    """One call of a layer.

    :param inputs: without a gradient of their own.
    :param version: of the inputs' tensor, which is another once something is written into it.
    :param source: node of the graph that the inputs come from; None where they have no gradient.
    :param edge: of the outputs in the graph.
    """

    layer: nn.Module
    inputs: Tensor
    version: int
    source: Any
    edge: GradientEdge


class LayerwiseGradients:
    """Takes gradients of a network's batches layer by layer, while it is open.

    :param trained: parameters of the model that have gradients.
    """

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
        self._trained = trained
        layers = [each for each in model.modules() if trained_parameters(each)]
        self._kinds = {each: kind for each in layers if (kind := gradients_class(each)) is not None}
        self._calls: list[_LayerCall] = []
        self._noting, self._unseen = False, False
        self._open = ExitStack()

    @property
    def applies(self) -> bool:
        """Whether each parameter belongs to one layer, of a kind whose gradients are had from what it takes."""
        owned = [id(parameter) for layer in self._kinds for parameter in trained_parameters(layer)]
        return len(owned) == len(self._trained) and set(owned) == set(map(id, self._trained))

    def __enter__(self) -> Self:
        for layer in self._kinds:
            self._open.callback(layer.register_forward_hook(self._note, with_kwargs=True).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def of(self, compute: Callable[[], Tensor], n: int) -> tuple[BatchGradients, Tensor] | None:
        """Gradients of n examples, and the sum of their losses; None where they do not follow from layers.

        :param compute: the sum of the losses, differentiable.
        """
        value, calls = self._note_calls(compute)
        if self._unseen or not _are_seen(value, calls, self._trained):
            return None
        back = torch.autograd.grad(value, [call.edge for call in calls], allow_unused=True) if calls else ()
        found: dict[nn.Module, list[CallGradients]] = {}
        for call, gradient in zip(calls, back, strict=True):
            if gradient is None:
                continue
            if call.inputs._version != call.version or {len(call.inputs), len(gradient)} != {n}:
                return None
            found.setdefault(call.layer, []).append(CallGradients(call.inputs, gradient))
        layers = [self._kinds[layer](layer, of_layer) for layer, of_layer in found.items()]
        return BatchGradients(self._trained, layers), value.detach()

    def _note_calls(self, compute: Callable[[], Tensor]) -> tuple[Tensor, Sequence[_LayerCall]]:
        """What is computed, and the calls that were made for it."""
        self._calls, self._unseen, self._noting = [], False, True
        try:
            return compute(), self._calls
        finally:
            self._noting, self._calls = False, []

    def _note(self, layer: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any], output: Any) -> None:
        if not self._noting:
            return
        if len(inputs) != 1 or given or not isinstance(output, Tensor) or not output.requires_grad:
            self._unseen = True
            return
        (taken,) = inputs
        source = get_gradient_edge(taken).node if taken.requires_grad else None
        self._calls.append(
            _LayerCall(layer, taken.detach(), taken._version, source, get_gradient_edge(output))
        )


def _are_seen(value: Tensor, calls: Sequence[_LayerCall], trained: Sequence[nn.Parameter]) -> bool:
    """Whether every way from the loss to a parameter is through a call of its layer."""
    outputs = {call.edge.node for call in calls}
    beside = _parameters_below([value.grad_fn, *(call.source for call in calls)], outputs)
    if beside & set(map(id, trained)):
        return False
    return all(
        _parameters_below([call.edge.node], {call.source})
        <= set(map(id, call.layer.parameters(recurse=False)))
        for call in calls
    )


def _parameters_below(starts: Iterable[Any], ends: set[Any]) -> set[int]:
    """Ids of the parameters that some nodes of a graph lead to, without a way through others."""
    found, seen, open_nodes = set(), set(ends), list(starts)
    while open_nodes:
        node = open_nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(variable := getattr(node, "variable", None), Tensor):
            found.add(id(variable))
        open_nodes += [below for below, _ in node.next_functions]
    return found


def _with_zeros(rows: Tensor, counted: Tensor) -> Tensor:
    """Zeros in place of the rows that do not count; codes stay."""
    if not rows.is_floating_point():
        return rows
    return torch.where(counted.reshape(-1, *[1] * (rows.dim() - 1)), rows, 0.0)
