"""Stochastic gradient descent with momentum: the arithmetic of `torch.optim.SGD` by its functional form.

`torch.optim.Optimizer` imports PyTorch's compiler when the first one is made: most of a second and a hundred megabytes,
in every trainer, for a feature that is not used here.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.sgd import sgd


class SGD:
    """SGD over some parameters; the momentum starts empty.

    :param parameters: what learns.
    :param lr: learning rate of every step.
    :param momentum: share of the last step's direction in the next; 0 for none.
    :param weight_decay: coefficient of the L2 term, added to the gradient before momentum.
    :param nesterov: whether a step looks ahead along the momentum.
    :ivar momenta: of each parameter; None before its first step.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
    ) -> None:
        self.parameters = list(parameters)
        self.momenta: list[Tensor | None] = [None] * len(self.parameters)
        self._lr = lr
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._nesterov = nesterov

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        indices = [index for index, parameter in enumerate(self.parameters) if parameter.grad is not None]
        gradients = [gradient for parameter in self.parameters if (gradient := parameter.grad) is not None]
        momenta = [self.momenta[index] for index in indices]
        sgd(
            [self.parameters[index] for index in indices],
            gradients,
            momenta,
            has_sparse_grad=any(gradient.is_sparse for gradient in gradients),
            lr=self._lr,
            momentum=self._momentum,
            weight_decay=self._weight_decay,
            dampening=0.0,
            nesterov=self._nesterov,
            maximize=False,
        )
        for index, momentum in zip(indices, momenta, strict=True):
            self.momenta[index] = momentum
