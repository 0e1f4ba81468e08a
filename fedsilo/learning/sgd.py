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
        """Drop the gradients of all parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        indices = [index for index, parameter in enumerate(self.parameters) if parameter.grad is not None]
        parameters = [self.parameters[index] for index in indices]
        gradients = [gradient for parameter in parameters if (gradient := parameter.grad) is not None]
        if any(gradient.is_sparse for gradient in gradients):
            self._step_sparse(indices, parameters, gradients)
            return
        if not parameters:
            return
        # What `sgd` computes, without what it asks of every tensor first: a third less time where tensors are small.
        directions = gradients
        if self._weight_decay:
            directions = list(torch._foreach_add(gradients, parameters, alpha=self._weight_decay))
        if self._momentum:
            momenta = self._add_to_momenta(indices, directions)
            if self._nesterov:
                directions = list(torch._foreach_add(directions, momenta, alpha=self._momentum))
            else:
                directions = momenta
        torch._foreach_add_(parameters, directions, alpha=-self._lr)

    def _add_to_momenta(self, indices: list[int], directions: list[Tensor]) -> list[Tensor]:
        """The momenta of these parameters with another step in them; that of a first step is its direction."""
        found, begun, added = list[Tensor](), list[Tensor](), list[Tensor]()
        for index, direction in zip(indices, directions, strict=True):
            momentum = self.momenta[index]
            if momentum is None:
                momentum = self.momenta[index] = direction.clone()
            else:
                begun.append(momentum)
                added.append(direction)
            found.append(momentum)
        if begun:
            torch._foreach_mul_(begun, self._momentum)
            torch._foreach_add_(begun, added)
        return found

    def _step_sparse(self, indices: list[int], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Take a step where some gradients are sparse, as an embedding's may be."""
        momenta = [self.momenta[index] for index in indices]
        sgd(
            parameters,
            gradients,
            momenta,
            has_sparse_grad=True,
            lr=self._lr,
            momentum=self._momentum,
            weight_decay=self._weight_decay,
            dampening=0.0,
            nesterov=self._nesterov,
            maximize=False,
        )
        for index, momentum in zip(indices, momenta, strict=True):
            self.momenta[index] = momentum
