"""Norms and clipped sums of a batch's gradients by one forward and one backward pass, layer by layer.

Hooks note what each layer takes. The backward pass goes to the layers' outputs only; gradients by parameters follow
from both (`fedsilo.learning.layer_gradients`). Where parameters are few (`fedsilo.learning.row_gradients`) it goes to
them, and the gradients of single examples are made on its way, so that it holds little more than a plain one. All that
holds where a parameter reaches the loss through calls of its own layer alone, or, where it has no such layer, by being
added; the graph of each pass says whether it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fedsilo.learning.layer_gradients import CallGradients, LayerGradients, trained_parameters
from fedsilo.learning.layer_kinds import LayerKind, gradients_class
from fedsilo.learning.row_gradients import AddedGradients, NormGradients


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
        gradients = self if finite.all() else self._mask(finite)
        gradients.add_weighted(sums, (norm / norms.clamp(min=norm)).nan_to_num(0.0))

    def _mask(self, counted: Tensor) -> BatchGradients:
        """Gradients of which those of other examples are zero."""
        return BatchGradients(self.parameters, [each.mask(counted) for each in self.layers])


Owner = nn.Module | nn.Parameter
"""What has gradients of its own: a layer, or a parameter that is added."""

Maker = Callable[[Tensor], LayerGradients | None]
"""Makes gradients of what comes back to one call or sum; None where they do not follow from that."""


@dataclass(frozen=True)
class _LayerCall:
    """One call of a layer.

    :param source: node of the graph that the inputs come from; None where they have no gradient.
    :param edge: of the outputs in the graph.
    :param make: None where gradients are made as soon as something comes back.
    """

    layer: nn.Module
    source: Any
    edge: GradientEdge
    make: Maker | None


class _MadeGradients:
    """Gradients that have been made of what came back in a pass.

    :ivar followed: whether all did follow from that.
    """

    def __init__(self) -> None:
        self.layers: dict[Owner, LayerGradients] = {}
        self.followed = True

    def add(self, owner: Owner, make: Maker, back: Tensor | None) -> None:
        """Make gradients of what came back to one call, if anything did."""
        if back is None:
            return
        if (made := make(back)) is None:
            self.followed = False
        else:
            self.layers[owner] = self.layers[owner].plus(made) if owner in self.layers else made

    def add_on_arrival(self, owner: Owner, make: Maker, edge: GradientEdge) -> None:
        """Have gradients made in the backward pass, so that nothing that they are made of stays until its end."""
        # What has the node must not be in the node's hook, or neither would ever be freed.
        waiting, place = [make], edge.output_nr
        edge.node.register_prehook(lambda back: self.add(owner, waiting.pop(), back[place]))


class LayerwiseGradients:
    """Takes gradients of a network's batches layer by layer, while it is open.

    :param trained: parameters of the model that have gradients.
    """

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
        self._trained = trained
        layers = [each for each in model.modules() if trained_parameters(each)]
        self._kinds = {each: kind for each in layers if (kind := gradients_class(each)) is not None}
        self._calls: list[_LayerCall] = []
        self._made: _MadeGradients | None = None
        self._n = 0
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
        value, calls, made = self._note_calls(compute, n)
        if not made.followed or (sums := _sums_beside(value, calls, self._trained, self._added)) is None:
            return None
        for parameter, edge in sums:
            made.add_on_arrival(parameter, partial(_added_gradients, parameter, n), edge)
        kept = [(call, call.make) for call in calls if call.make is not None]
        # To where gradients are made on arrival autograd comes on its way to the parameters, which are small.
        small = [each for call in calls if call.make is None for each in trained_parameters(call.layer)]
        small = list(dict.fromkeys([*small, *(parameter for parameter, _ in sums)]))
        ends: list[Any] = [*(call.edge for call, _ in kept), *small]
        back = torch.autograd.grad(value, ends, allow_unused=True) if ends else ()
        for (call, make), gradient in zip(kept, back[: len(kept)], strict=True):
            made.add(call.layer, make, gradient)
        if not made.followed:
            return None
        return BatchGradients(self._trained, list(made.layers.values())), value.detach()

    def _note_calls(
        self, compute: Callable[[], Tensor], n: int
    ) -> tuple[Tensor, Sequence[_LayerCall], _MadeGradients]:
        """What is computed of n examples, the calls that were made for it, and where their gradients will be."""
        calls, made = list[_LayerCall](), _MadeGradients()
        self._calls, self._made, self._n = calls, made, n
        try:
            return compute(), calls, made
        finally:
            self._calls, self._made = [], None

    def _note(self, layer: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any], output: Any) -> None:
        if self._made is None:
            return
        if len(inputs) != 1 or given or not isinstance(output, Tensor) or not output.requires_grad:
            self._made.followed = False
            return
        (taken,), kind, edge = inputs, self._kinds[layer], get_gradient_edge(output)
        source = get_gradient_edge(taken).node if taken.requires_grad else None
        make: Maker = partial(_layer_gradients, kind, layer, taken.detach(), taken._version, self._n)
        if kind is NormGradients:
            self._made.add_on_arrival(layer, make, edge)
        self._calls.append(_LayerCall(layer, source, edge, None if kind is NormGradients else make))


def _layer_gradients(
    kind: LayerKind, layer: nn.Module, inputs: Tensor, version: int, n: int, outputs: Tensor
) -> LayerGradients | None:
    """Gradients by one call; None where its inputs are no longer what they were, or not those of n examples.

    :param version: of the inputs' tensor when they were taken, which is another once something is written into it.
    """
    if inputs._version != version or {len(inputs), len(outputs)} != {n}:
        return None
    return kind(layer, [CallGradients(inputs, outputs)])


def _added_gradients(parameter: nn.Parameter, n: int, outputs: Tensor) -> LayerGradients | None:
    """Gradients by a parameter that is added, with a row for each of n examples, to each of which it is added alike."""
    if outputs.dim() == 0 or len(outputs) != n:
        return None
    if parameter.dim() >= outputs.dim() and len(parameter) != 1:
        return None
    return AddedGradients(parameter, outputs)


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
