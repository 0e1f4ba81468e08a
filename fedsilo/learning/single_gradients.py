"""Clipped gradients of single examples: layer by layer, all of a batch at once, or one after the other.

Layer by layer takes one pass for a batch, and needs layers whose gradients follow from what they take. Opacus makes the
gradients of a whole batch by hooks on modules, of whose kinds it has to know. Whether either can take a network apart
is tried: what it finds for a few examples must be what backward passes of each by itself find. Where it is not, each
example gets a pass of its own, which is slow and always right.

Every pass begins with the parameters and buffers that the step began with, so that no example meets what another one
left in them.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.fixed_draws import fixed_draws
from fedsilo.learning.gradients import Loss, clear
from fedsilo.learning.held_state import HeldState
from fedsilo.learning.layerwise_gradients import BatchGradients, LayerwiseGradients
from fedsilo.learning.opacus_hooks import OpacusGradients, Part

FIELD = "spec.privacy.differentialPrivacy"

TRIED_EXAMPLES = 3
"""Examples that the hooks are tried on."""

CLOSE = 0.01
"""Largest difference of two gradients, over their norm, that is rounding; `CLOSE_HALVES` of half precision."""

CLOSE_HALVES = 0.05

NEGLIGIBLE_SHARE = 1e-5
"""Share of all gradients' norm below which a parameter has a part in the loss by rounding only."""

log = logging.getLogger("fedsilo.trainer")

LAYER_BY_LAYER = "layer by layer, by one pass for a batch"
BATCH_AT_ONCE = (
    "those of a batch at once, with the memory of as many networks, since not all follow from layers"
)
ONE_BY_ONE = "each example gets a backward pass of its own, since hooks do not find them"


class SingleGradients:
    """Takes batches' gradients apart, while it is open.

    :param trained: parameters of the model that have gradients.
    :param loss: mean over a batch of what each example has by itself.
    """

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter], loss: Loss) -> None:
        self._model, self._trained, self._loss = model, list(trained), loss
        self._state = HeldState(model)
        self._layerwise: LayerwiseGradients | None = None
        self._hooks: OpacusGradients | None = None
        self._choosing = False
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Compiled code, which knows nothing of hooks, is left aside."""
        self._open.enter_context(disable_compilation())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the network without hooks and gradients, with the parameters that it has now."""
        self._one_by_one()
        clear(self._model.parameters())
        self._open.close()

    def choose(self, features: Tensor, labels: Tensor) -> str:
        """Find out, by some examples, how gradients of this network are had; says it in words.

        :raises MethodError: network or loss have examples see each other, or no parameter has any part in the loss.
        """
        self._choosing = True
        try:
            return self._choose(features[:TRIED_EXAMPLES], labels[:TRIED_EXAMPLES])
        finally:
            self._choosing = False

    def _choose(self, features: Tensor, labels: Tensor) -> str:
        close = CLOSE_HALVES if has_halves(self._trained) else CLOSE
        self._layerwise = LayerwiseGradients(self._model, self._trained)
        if self._layerwise.applies:
            self._layerwise.__enter__()
            self._state.restore()
            layers = self._by_layers(features, labels)
            if layers is not None and self._layers_agree(layers[0], features, labels, close):
                return LAYER_BY_LAYER
        self._one_by_one()
        alone = _joined_gradients(
            [self._single_gradient(features, labels, place) for place in range(len(labels))]
        )
        self._hooks = OpacusGradients.hook(self._model, self._trained)
        found = self._by_hooks(features, labels)
        if found is not None and _agree(found[0], alone, close):
            return BATCH_AT_ONCE
        self._one_by_one()
        together, sums = self._batch_gradients(features, labels), [each.sum(dim=0) for each in alone]
        distances = [_distance(one, other) for one, other in zip(together, sums, strict=True)]
        if math.hypot(*distances) > close * _whole_size(alone):
            raise MethodError(
                f"{FIELD}: the gradient of a batch is not the sum of its examples' gradients, so that examples see "
                "each other in the network or its loss; use a network and a loss that take each example by itself"
            )
        return ONE_BY_ONE

    def _layers_agree(
        self, layers: BatchGradients, features: Tensor, labels: Tensor, tolerance: float
    ) -> bool:
        """Whether layers have the gradients of single examples, and each of them their norms.

        Example by example, since each of these gradients is as large as the network.
        """
        found = [each.squares().sqrt().cpu() for each in layers.layers]
        compared = []
        for place, one in enumerate(torch.eye(len(labels), device=labels.device)):
            single, _ = self._single_gradient(features, labels, place)
            compared.append(_compare(layers, one, [each[0] for each in single]))
        distances, sizes, norms = torch.tensor(compared, dtype=torch.float64).unbind(dim=1)
        allowed = (tolerance * sizes.norm(dim=0)).clamp(min=NEGLIGIBLE_SHARE * float(sizes.norm()))
        if not bool((distances.norm(dim=0) <= allowed).all()):
            return False
        expected = [torch.stack(each).norm(dim=0) for each in layers.split(list(norms.T))]
        return _agree(found, expected, tolerance)

    def add_clipped(self, sums: Sequence[Tensor], features: Tensor, labels: Tensor, norm: float) -> float:
        """Add sum_i min(1, C / |g_i|) g_i over a batch, under the parameters that the model has now; the losses' sum.

        :param sums: of each parameter; a gradient that is not finite adds nothing.
        :param norm: C
        """
        self._state.renew()
        layers = self._by_layers(features, labels)
        if layers is None:
            if self._layerwise is not None:
                log.info("gradients of single examples: %s", ONE_BY_ONE)
            losses = 0.0
            for gradients, value in self.of(features, labels):
                clipped_sum(sums, gradients, norm)
                losses += float(value)
            return losses
        gradients_by_layer, value = layers
        gradients_by_layer.add_clipped(sums, norm)
        self._state.restore()
        return float(value)

    def of(self, features: Tensor, labels: Tensor) -> Iterator[Part]:
        """Gradients of all examples of a batch, in parts, under the parameters that the model has now."""
        self._state.renew()
        found = self._by_hooks(features, labels)
        if found is not None:
            yield found
        else:
            self._one_by_one()
            for place in range(len(labels)):
                yield self._single_gradient(features, labels, place)
        self._state.restore()

    def _single_gradient(self, features: Tensor, labels: Tensor, place: int) -> Part:
        value = self._backward(features[place : place + 1], labels[place : place + 1])
        return [_dense_gradient(each).unsqueeze(0) for each in self._trained], value

    def _batch_gradients(self, features: Tensor, labels: Tensor) -> list[Tensor]:
        self._backward(features, labels)
        return [_dense_gradient(each) for each in self._trained]

    def _backward(self, features: Tensor, labels: Tensor) -> Tensor:
        """The losses' sum, whose gradients are in the parameters then."""
        self._state.restore()
        value = self._losses(features, labels)
        torch.autograd.backward(value)
        return value.detach()

    def _losses(self, features: Tensor, labels: Tensor) -> Tensor:
        """The losses' sum, differentiable."""
        clear(self._trained)
        with fixed_draws(labels.device) if self._choosing else nullcontext():
            value = self._loss(self._model, features, labels) * len(labels)
        if not value.requires_grad:
            raise MethodError(
                f"{FIELD}: no parameter of the network has a part in the loss, so that there is nothing to learn; "
                "remove what cuts its outputs off from its parameters, such as torch.no_grad or detach"
            )
        return value

    def _by_layers(self, features: Tensor, labels: Tensor) -> tuple[BatchGradients, Tensor] | None:
        """What the layers took and what came back to them; None where gradients do not follow from it."""
        if self._layerwise is None:
            return None
        try:
            return self._layerwise.of(partial(self._losses, features, labels), len(labels))
        except MethodError:
            raise
        except Exception:  # whatever a layer raises that is called in another way than the tried ones
            return None

    def _by_hooks(self, features: Tensor, labels: Tensor) -> Part | None:
        """What Opacus found of a batch; None where it does not apply to the network."""
        if self._hooks is None:
            return None
        return self._hooks.of(partial(self._backward, features, labels), len(labels))

    def _one_by_one(self) -> None:
        """Take all hooks off the network."""
        if self._layerwise is not None:
            self._layerwise.__exit__()
        if self._hooks is not None:
            self._hooks.close()
        self._layerwise = self._hooks = None


def disable_compilation() -> AbstractContextManager[Any]:
    """Inside, what went through `torch.compile` runs as it was written, also where another job compiled it before."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _dense_gradient(parameter: nn.Parameter) -> Tensor:
    """Gradient of the parameter as a dense tensor; zeros where it has no part in the loss."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def _joined_gradients(parts: Sequence[Part]) -> list[Tensor]:
    return [torch.cat(each) for each in zip(*(gradients for gradients, _ in parts), strict=True)]


def _agree(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> bool:
    """Whether gradients differ by rounding only: of their own size, or of next to nothing beside all others."""
    nothing = NEGLIGIBLE_SHARE * _whole_size(expected)
    return all(
        _distance(one, other) <= max(tolerance * _size(other), nothing)
        for one, other in zip(found, expected, strict=True)
    )


def _compare(
    layers: BatchGradients, one: Tensor, gradients: Sequence[Tensor]
) -> tuple[list[float], list[float], list[float]]:
    """Distances of one example's gradients in layers from those of a pass by itself, and the latter's sizes and norms.

    :param one: (n,) 1 for the example, and 0 for all others.
    :param gradients: by each parameter, which are overwritten.
    """
    norms = [float(each.norm()) for each in gradients]
    if all(map(math.isfinite, norms)):
        layers.add_weighted(gradients, -one)
        return [float(each.norm()) for each in gradients], norms, norms
    found = [torch.zeros_like(each) for each in gradients]
    layers.add_weighted(found, one)
    return list(map(_distance, found, gradients)), list(map(_size, gradients)), norms


def _distance(one: Tensor, other: Tensor) -> float:
    """Norm of the difference; what is not finite in both counts as equal."""
    one, other = one.float(), other.float()
    distance = float((one - other).norm())
    if math.isfinite(distance):
        return distance
    return float(torch.where(one.isfinite() | other.isfinite(), one - other, 0).norm())


def _size(gradient: Tensor) -> float:
    size = float(gradient.float().norm())
    return size if math.isfinite(size) else float(gradient.float().nan_to_num(0.0, 0.0, 0.0).norm())


def _whole_size(gradients: Sequence[Tensor]) -> float:
    """Norm over all parameters."""
    return math.hypot(*map(_size, gradients))


def has_halves(parameters: Iterable[Tensor]) -> bool:
    """Whether some are of half precision, in which results of the same are less alike."""
    return any(each.is_floating_point() and each.dtype.itemsize < 4 for each in parameters)


def clipped_sum(sums: Sequence[Tensor], gradients: Sequence[Tensor], norm: float) -> None:
    """Add sum_i min(1, C / |g_i|) g_i to the sums; of a gradient that is not finite nothing.

    :param gradients: (m, *shape) of each parameter; |g_i| is over all of them.
    """
    rows = [
        each.reshape(len(each), math.prod(each.shape[1:])).to(total.dtype)
        for each, total in zip(gradients, sums, strict=True)
    ]
    norms = torch.stack([each.norm(dim=1) for each in rows]).norm(dim=0)
    factors = (norm / norms.clamp(min=norm)).nan_to_num(0.0)
    for total, row in zip(sums, rows, strict=True):
        total += (factors @ row.nan_to_num(0.0, 0.0, 0.0)).reshape(total.shape)
