"""The optimisers of `fedsilo.learning.optimizers` for the stacked weights of several clients.

Every client has a row of its own, and steps as it would alone, up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.training import LocalTraining

Stack = dict[str, Tensor]
"""Tensors of all clients by name, one after the other along the first dimension."""


class StackedOptimizer:
    """One optimiser of each client's, all of the same settings.

    :param stack: the weights, changed in place by `step`.
    :param trained: names of those that learn.
    :param plans: of each row; they differ in seeds and kept states only.
    """

    def __init__(self, stack: Stack, trained: Sequence[str], plans: Sequence[LocalTraining]) -> None:
        self._stack = stack
        self._plans = list(plans)
        self._plan = plans[0]
        self._trained = list(trained)
        kinds = ("momentum_buffer",) if self._plan.optimizer == "sgd" else ("exp_avg", "exp_avg_sq")
        states = [plan.kept or OptimizerState() for plan in plans]
        self._state = {kind: {name: self._rows(kind, name, states) for name in trained} for kind in kinds}
        taken = {name: [float(state.steps.get(name, 0)) for state in states] for name in trained}
        self._steps = {
            name: torch.tensor(counts, dtype=stack[name].dtype, device=stack[name].device)
            for name, counts in taken.items()
        }

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], active: int) -> None:
        """Change the first so many rows by their gradients."""
        for name, gradient in gradients.items():
            weight = self._stack[name][:active]
            if self._plan.optimizer == "sgd":
                self._sgd(name, weight, gradient, active)
            else:
                self._adam(name, weight, gradient, active)

    def keep(self) -> None:
        """Replace the state that each client's plan brought by its last."""
        kinds = self._state if self._plan.optimizer != "sgd" or self._plan.momentum else {}
        trees = {
            kind: {name: self._state[kind][name].cpu().numpy() for name in self._trained} for kind in kinds
        }
        steps = {name: taken.tolist() for name, taken in self._steps.items()}
        for row, plan in enumerate(self._plans):
            if plan.kept is not None:
                own = {
                    kind: {name: array[row] for name, array in tree.items()} for kind, tree in trees.items()
                }
                counts = {name: int(taken[row]) for name, taken in steps.items()}
                plan.kept.replace(OptimizerState(own, {} if plan.optimizer == "sgd" else counts))

    def _rows(self, kind: str, name: str, states: Sequence[OptimizerState]) -> Tensor:
        """What the clients kept of a parameter; zero where a client kept nothing."""
        like = self._stack[name]
        rows = torch.zeros_like(like)
        for row, state in enumerate(states):
            if name in state.trees.get(kind, {}):
                rows[row] = torch.tensor(np.array(state.trees[kind][name]), device=like.device)
        return rows

    def _sgd(self, name: str, weight: Tensor, gradient: Tensor, active: int) -> None:
        plan, momentum = self._plan, self._state["momentum_buffer"][name][:active]
        if plan.weight_decay:
            # Not in place: parameters that are added to each other have one gradient between them.
            gradient = gradient.add(weight, alpha=plan.weight_decay)
        momentum.mul_(plan.momentum).add_(gradient)
        direction = gradient.add(momentum, alpha=plan.momentum) if plan.nesterov else momentum
        weight.sub_(direction, alpha=plan.lr)

    def _adam(self, name: str, weight: Tensor, gradient: Tensor, active: int) -> None:
        plan, (first, second) = self._plan, self._plan.betas
        mean, square = self._state["exp_avg"][name][:active], self._state["exp_avg_sq"][name][:active]
        steps = self._steps[name][:active]
        steps.add_(1)
        if plan.optimizer == "adamw":
            weight.mul_(1 - plan.lr * plan.weight_decay)
        elif plan.weight_decay:
            gradient = gradient.add(weight, alpha=plan.weight_decay)
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        per_row = steps.reshape(-1, *[1] * (gradient.dim() - 1))
        corrected = square.sqrt() / (1 - second**per_row).sqrt() + plan.eps
        weight.sub_(mean / corrected / (1 - first**per_row), alpha=plan.lr)
