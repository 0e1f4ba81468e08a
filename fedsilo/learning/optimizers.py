"""The optimisers of local training, and their state as a silo may keep it from one round to the next.

The arithmetic is that of `torch.optim`, by its functional forms; `fedsilo.learning.sgd` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam

from fedsilo.learning.sgd import SGD

Tree = dict[str, np.ndarray]
LOSS_SCALE = "loss_scale"
"""Kind of state, and name of its one array: the scale of the loss in float16, and steps since it last changed."""

OptimizerName = Literal["sgd", "adam", "adamw"]


@dataclass
class OptimizerState:
    """What an optimiser keeps beside the parameters: `fit` begins with it, and leaves the new one in its place.

    :param trees: PyTorch's name of the state (`momentum_buffer`, `exp_avg`, `exp_avg_sq`) -> parameter -> array.
    :param steps: parameter -> steps taken so far, for Adam's correction of the bias.
    :param replaced: whether a training has put its own in place.
    """

    trees: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    replaced: bool = False

    def replace(self, new: OptimizerState) -> None:
        """Put a later state in place of this one."""
        self.trees = {kind: tree for kind, tree in new.trees.items() if tree}
        self.steps, self.replaced = new.steps, True

    def with_trees(self, more: Mapping[str, Mapping[str, np.ndarray]]) -> OptimizerState:
        """This state with further kinds."""
        return OptimizerState({**self.trees, **more}, self.steps)


class Optimizer(Protocol):
    """Changes parameters by their gradients."""

    def step(self) -> None:
        """Change every parameter that has a gradient."""

    def load(self, state: OptimizerState) -> None:
        """Go on from this state; what it does not name begins empty."""

    def state(self) -> OptimizerState:
        """The state as arrays in host memory."""


class MomentumOptimizer:
    """SGD over named parameters.

    :param nesterov: the step looks ahead along the momentum (Sutskever et al., ICML 2013, as PyTorch has it).
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        lr: float,
        momentum: float,
        weight_decay: float,
        nesterov: bool,
    ) -> None:
        self._names = list(parameters)
        self._sgd = SGD(parameters.values(), lr, momentum, weight_decay, nesterov=nesterov)
        self.step = self._sgd.step

    def load(self, state: OptimizerState) -> None:
        """Go on from this state; what it does not name begins empty."""
        kept = state.trees.get("momentum_buffer", {})
        for index, name in enumerate(self._names):
            if name in kept:
                like = self._sgd.parameters[index]
                self._sgd.momenta[index] = torch.tensor(kept[name], device=like.device)

    def state(self) -> OptimizerState:
        """Momenta of the parameters that have one, by name."""
        named = zip(self._names, self._sgd.momenta, strict=True)
        return OptimizerState({"momentum_buffer": {name: _array(m) for name, m in named if m is not None}})


class AdamOptimizer:
    """Adam (Kingma and Ba, ICLR 2015) or AdamW (Loshchilov and Hutter, ICLR 2019), as `torch.optim` has them.

    :param decoupled: weight decay shrinks the weights themselves, AdamW; otherwise it is added to the gradient.
    :ivar lr: learning rate of the next step.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        *,
        decoupled: bool,
    ) -> None:
        self._parameters = dict(parameters)
        self.lr, self._betas, self._eps, self._weight_decay = lr, betas, eps, weight_decay
        self._decoupled = decoupled
        self._means: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}
        self._steps: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        gradients = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        for name in gradients.keys() - self._means.keys():
            self._means[name] = torch.zeros_like(self._parameters[name])
            self._squares[name] = torch.zeros_like(self._parameters[name])
            self._steps[name] = torch.tensor(0.0)  # on the CPU, as PyTorch keeps it
        adam(
            [self._parameters[name] for name in gradients],
            list(gradients.values()),
            [self._means[name] for name in gradients],
            [self._squares[name] for name in gradients],
            [],
            [self._steps[name] for name in gradients],
            decoupled_weight_decay=self._decoupled,
            amsgrad=False,
            maximize=False,
            lr=self.lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            eps=self._eps,
            weight_decay=self._weight_decay,
        )

    def load(self, state: OptimizerState) -> None:
        """Go on from this state; what it does not name begins empty."""
        for name, count in state.steps.items():
            if name in self._parameters:
                device = self._parameters[name].device
                self._means[name] = torch.tensor(state.trees["exp_avg"][name], device=device)
                self._squares[name] = torch.tensor(state.trees["exp_avg_sq"][name], device=device)
                self._steps[name] = torch.tensor(float(count))

    def state(self) -> OptimizerState:
        """Both moments, and the steps that they stand for."""
        moments = {"exp_avg": self._means, "exp_avg_sq": self._squares}
        names = [name for name in self._parameters if name in self._means]
        trees = {kind: {name: _array(tree[name]) for name in names} for kind, tree in moments.items()}
        return OptimizerState(trees, {name: int(self._steps[name].item()) for name in names})


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
