"""Gradients of single examples: all of a batch in one backward pass, or one after the other.

Opacus takes a batch's gradient apart by hooks on modules, of whose kinds it has to know. Whether it can take a network
apart is tried: what it finds for a few examples must be what backward passes of each by itself find. Where it is not,
each example gets a pass of its own, which is slow and always right.

Every pass begins with the parameters and buffers that the step began with, so that no example meets what another one
left in them.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.fixed_draws import fixed_draws
from fedsilo.learning.gradients import Loss, clear
from fedsilo.learning.held_state import HeldState

FIELD = "spec.privacy.differentialPrivacy"

TRIED_EXAMPLES = 3
"""Examples that the hooks are tried on."""

CLOSE = 0.01
"""Largest difference of two gradients, over their norm, that is rounding; `CLOSE_HALVES` of half precision."""

CLOSE_HALVES = 0.05

NEGLIGIBLE_SHARE = 1e-5
"""Share of all gradients' norm below which a parameter has a part in the loss by rounding only."""

log = logging.getLogger("fedsilo.trainer")

Part = tuple[list[Tensor], Tensor]
"""Gradients (m, *shape) of m examples by each parameter, and their losses' sum."""


class SingleGradients:
    """Takes batches' gradients apart, while it is open.

    :param trained: parameters of the model that have gradients.
    :param loss: mean over a batch of what each example has by itself.
    """

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter], loss: Loss) -> None:
        self._model, self._trained, self._loss = model, list(trained), loss
        self._state = HeldState(model)
        self._hooks: Any = None
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
        self._close_hooks()
        clear(self._model.parameters())
        self._open.close()

    def choose(self, features: Tensor, labels: Tensor) -> None:
        """Find out, by some examples, how gradients of this network are had.

        :raises MethodError: network or loss have examples see each other, or no parameter has any part in the loss.
        """
        self._choosing = True
        try:
            self._choose(features[:TRIED_EXAMPLES], labels[:TRIED_EXAMPLES])
        finally:
            self._choosing = False

    def _choose(self, features: Tensor, labels: Tensor) -> None:
        alone = _joined_gradients(
            [self._single_gradient(features, labels, place) for place in range(len(labels))]
        )
        self._open_hooks()
        found = self._by_hooks(features, labels)
        close = CLOSE_HALVES if has_halves(self._trained) else CLOSE
        if found is not None and _agree(found[0], alone, close):
            return
        self._close_hooks()
        together, sums = self._batch_gradients(features, labels), [each.sum(dim=0) for each in alone]
        if _distance(_flat_gradients(together), _flat_gradients(sums)) > close * _size(
            _flat_gradients(alone)
        ):
            raise MethodError(
                f"{FIELD}: the gradient of a batch is not the sum of its examples' gradients, so that examples see "
                "each other in the network or its loss; use a network and a loss that take each example by itself"
            )
        log.info(
            "gradients of single examples: each gets a backward pass of its own, since hooks do not find them"
        )

    def of(self, features: Tensor, labels: Tensor) -> Iterator[Part]:
        """All examples of a batch, in parts, under the parameters that the model has now."""
        self._state = HeldState(self._model)
        found = self._by_hooks(features, labels) if self._hooks is not None else None
        if found is not None:
            yield found
        else:
            self._close_hooks()
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
        clear(self._trained)
        self._state.restore()
        with fixed_draws(labels.device) if self._choosing else nullcontext():
            value = self._loss(self._model, features, labels) * len(labels)
        if not value.requires_grad:
            raise MethodError(
                f"{FIELD}: no parameter of the network has a part in the loss, so that there is nothing to learn; "
                "remove what cuts its outputs off from its parameters, such as torch.no_grad or detach"
            )
        torch.autograd.backward(value)
        return value.detach()

    def _open_hooks(self) -> None:
        from opacus import GradSampleModule

        try:
            self._hooks = GradSampleModule(self._model, loss_reduction="sum", strict=False)
        except Exception:  # whatever a module that Opacus cannot hook raises
            self._close_hooks()

    def _by_hooks(self, features: Tensor, labels: Tensor) -> Part | None:
        """What the hooks found; None where they do not apply to the network."""
        if self._hooks is None:
            return None
        try:
            with warnings.catch_warnings():
                # The first layer is hooked too, whose inputs are the examples, of which no gradient is wanted.
                warnings.filterwarnings("ignore", "Full backward hook is firing")
                value = self._backward(features, labels)
        except MethodError:
            raise
        except Exception:  # whatever a hook raises in a module of which it cannot take the gradient apart
            return None
        found = []
        for parameter in self._trained:
            sample = getattr(parameter, "grad_sample", None)
            if sample is None and parameter.grad is None:
                sample = parameter.new_zeros((len(labels), *parameter.shape))
            if not isinstance(sample, Tensor) or sample.shape != (len(labels), *parameter.shape):
                return None
            found.append(sample)
            parameter.grad_sample = None  # type: ignore[attr-defined]
        return found, value

    def _close_hooks(self) -> None:
        self._hooks = None
        # Those of modules that came before one which cannot be hooked, too.
        for handle in getattr(self._model, "autograd_grad_sample_hooks", ()):
            handle.remove()
        for owner in (*self._model.parameters(), *self._model.modules()):
            for name in _LEFT_BY_HOOKS:
                owner.__dict__.pop(name, None)


_LEFT_BY_HOOKS = (
    "activations",
    "autograd_grad_sample_hooks",
    "ft_compute_sample_grad",
    "grad_sample",
    "max_batch_len",
    "_current_grad_sample",
    "_forward_counter",
)
"""Attributes that Opacus gives to modules and parameters."""


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


def _flat_gradients(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten().float() for each in gradients])


def _agree(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> bool:
    """Whether gradients differ by rounding only: of their own size, or of next to nothing beside all others."""
    nothing = NEGLIGIBLE_SHARE * _size(_flat_gradients(expected))
    return all(
        _distance(one, other) <= max(tolerance * _size(other), nothing)
        for one, other in zip(found, expected, strict=True)
    )


def _distance(one: Tensor, other: Tensor) -> float:
    """Norm of the difference; what is not finite in both counts as equal."""
    one, other = one.float(), other.float()
    return float(torch.where(one.isfinite() | other.isfinite(), one - other, 0).norm())


def _size(gradient: Tensor) -> float:
    return float(gradient.float().nan_to_num(0.0, 0.0, 0.0).norm())


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
