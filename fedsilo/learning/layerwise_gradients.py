"""Norms and clipped sums of a batch's gradients by one forward and one backward pass, layer by layer.

Hooks note what each layer takes. The backward pass goes to the layers' outputs only; gradients by parameters follow
from both (`fedsilo.learning.layer_gradients`). That holds where a parameter reaches the loss through calls of its own
layer alone, or, where it has no such layer, by being added; the graph of each pass says whether it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fedsilo.learning.layer_gradients import (
    AddedGradients,
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
            layer.add_weighted(totals, factors)

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

        owned = [id(parameter) for layer in self._kinds for parameter in trained_parameters(layer)]
        self._shared = len(owned) > len(set(owned))
        self._added = {id(each): each for each in trained if id(each) not in owned}

    @property
    def applies(self) -> bool:
        """Whether no parameter belongs to two layers, and those of layers of no known kind may be what is added."""
        return not self._shared and all(
            each.dtype in (torch.float32, torch.float64) for each in self._added.values()
        )

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
        if self._unseen or (sums := _sums_beside(value, calls, self._trained, self._added)) is None:
            return None
        edges = [*(call.edge for call in calls), *(edge for _, edge in sums)]
        back = torch.autograd.grad(value, edges, allow_unused=True) if edges else ()
        found: dict[nn.Module | nn.Parameter, list[CallGradients]] = {}
        for call, gradient in zip(calls, back[: len(calls)], strict=True):
            if gradient is None:
                continue
            if call.inputs._version != call.version or {len(call.inputs), len(gradient)} != {n}:
                return None
            found.setdefault(call.layer, []).append(CallGradients(call.inputs, gradient))
        for (parameter, _), gradient in zip(sums, back[len(calls) :], strict=True):
            if gradient is None:
                continue
            if not _has_rows(gradient, parameter, n):
                return None
            found.setdefault(parameter, []).append(CallGradients(gradient, gradient))
        layers = [self._class_of(owner)(owner, of_owner) for owner, of_owner in found.items()]
        return BatchGradients(self._trained, layers), value.detach()

    def _class_of(self, owner: nn.Module | nn.Parameter) -> type[LayerGradients]:
        return AddedGradients if isinstance(owner, nn.Parameter) else self._kinds[owner]

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


def _sums_beside(
    value: Tensor, calls: Sequence[_LayerCall], trained: Sequence[nn.Parameter], added: Container[int]
) -> list[tuple[nn.Parameter, GradientEdge]] | None:
    """Sums with the parameters that are added, at their place in the graph.

    None where the loss has a way to a parameter that is neither through a call of its layer nor such a sum.
    """
    outputs = {call.edge.node for call in calls}
    beside = _parameters_below([value.grad_fn, *(call.source for call in calls)], outputs)
    found = []
    for parameter in trained:
        for node in beside.get(id(parameter), ()):
            if id(parameter) not in added or not _is_sum(node):
                return None
            found.append((parameter, GradientEdge(node, 0)))
    for call in calls:
        own = map(id, call.layer.parameters(recurse=False))
        if not _parameters_below([call.edge.node], {call.source}).keys() <= set(own):
            return None
    return found


def _is_sum(node: Any) -> bool:
    return node is not None and node.name() == "AddBackward0" and node._saved_alpha == 1


def _has_rows(gradient: Tensor, parameter: nn.Parameter, n: int) -> bool:
    """Whether a sum with a parameter has a row for each of n examples, to each of which it is added alike."""
    if gradient.dim() == 0 or len(gradient) != n:
        return False
    return parameter.dim() < gradient.dim() or len(parameter) == 1


def _parameters_below(starts: Iterable[Any], ends: set[Any]) -> dict[int, list[Any]]:
    """Parameters that some nodes of a graph lead to, without a way through others: id -> nodes that take it.

    None stands for the taker of what is itself a start.
    """
    found, seen = defaultdict[int, list[Any]](list), set(ends)
    open_nodes: list[tuple[Any, Any]] = [(None, start) for start in starts]
    while open_nodes:
        taker, node = open_nodes.pop()
        if isinstance(variable := getattr(node, "variable", None), Tensor) and node not in ends:
            found[id(variable)].append(taker)
        elif node is not None and node not in seen:
            seen.add(node)
            open_nodes += [(node, below) for below, _ in node.next_functions]
    return found


def _with_zeros(rows: Tensor, counted: Tensor) -> Tensor:
    """Zeros in place of the rows that do not count; codes stay."""
    if not rows.is_floating_point():
        return rows
    return torch.where(counted.reshape(-1, *[1] * (rows.dim() - 1)), rows, 0.0)
