"""Gradients of single examples by Opacus' hooks on modules: those of a whole batch in one backward pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Self

from torch import Tensor, nn

from fedsilo.errors import MethodError

Part = tuple[list[Tensor], Tensor]
"""Gradients (m, *shape) of m examples by each parameter, and their losses' sum."""


class OpacusGradients:
    """Takes batches' gradients apart by hooks, until it is closed.

    :param trained: parameters of the model that have gradients.
    """

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
        self._model, self._trained = model, trained

    @classmethod
    def hook(cls, model: nn.Module, trained: Sequence[nn.Parameter]) -> Self | None:
        """With hooks on the model; None where Opacus cannot hook it."""
        from opacus import GradSampleModule

        found = cls(model, trained)
        try:
            GradSampleModule(model, loss_reduction="sum", strict=False)
        except Exception:  # whatever a module that Opacus cannot hook raises
            found.close()
            return None
        return found

    def of(self, backward: Callable[[], Tensor], n: int) -> Part | None:
        """What the hooks found of n examples; None where they do not apply to the network.

        :param backward: computes the losses' sum and the gradients of it.
        """
        try:
            with warnings.catch_warnings():
                # The first layer is hooked too, whose inputs are the examples, of which no gradient is wanted.
                warnings.filterwarnings("ignore", "Full backward hook is firing")
                value = backward()
        except MethodError:
            raise
        except Exception:  # whatever a hook raises in a module of which it cannot take the gradient apart
            return None
        found = []
        for parameter in self._trained:
            sample = getattr(parameter, "grad_sample", None)
            if sample is None and parameter.grad is None:
                sample = parameter.new_zeros((n, *parameter.shape))
            if not isinstance(sample, Tensor) or sample.shape != (n, *parameter.shape):
                return None
            found.append(sample)
            parameter.grad_sample = None  # type: ignore[attr-defined]
        return found, value

    def close(self) -> None:
        """Take the hooks off, those of modules that came before one which cannot be hooked, too."""
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
