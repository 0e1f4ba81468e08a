"""One model that learns what others answer on examples, at the aggregator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.examples import Examples, batches
from fedsilo.learning.gradients import clear, make_dense
from fedsilo.learning.models import evaluating
from fedsilo.learning.optimizers import AdamOptimizer
from fedsilo.learning.sgd import SGD
from fedsilo.learning.transfer import divergence

CHECK_STEPS = 100
"""Steps between two looks at the examples that are held out."""

HELD_OUT = 0.1
"""Share of the examples that are held out where training may end early; at least one."""


@dataclass(frozen=True)
class Distillation:
    """How a student learns the answers; its BatchNorm keeps its statistics, and nothing is dropped out.

    :param cosine: Adam's rate falls along half a cosine to 0 after the last step.
    :param patience: steps without a lower divergence on examples held out, after which it ends with the best weights;
        None trains on all examples to the end.
    :param averaging: first step and distance of steps whose weights are averaged in the end, as stochastic weight
        averaging does (Izmailov et al., UAI 2018); None ends with the last weights, as does too short a training.
    """

    lr: float
    steps: int
    batch_size: int
    seed: int
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0
    cosine: bool = False
    gradient_clip: float | None = None
    patience: int | None = None
    averaging: tuple[int, int] | None = None


def distil(student: nn.Module, examples: Examples, targets: Tensor, plan: Distillation) -> None:
    """Train in place towards the least KL(target || student) of the examples.

    :param targets: probabilities (n, C).
    :raises MethodError: training diverged.
    """
    learned, held = _train_holdout_split(len(examples), plan, targets.device)
    parameters = dict(student.named_parameters())
    best, average = _BestWeights(parameters), _Average(parameters)
    with evaluating(student):
        if plan.patience is not None:
            best.note(0, _divergence(student, examples, targets, held))
        for step in _steps(student, examples, targets, learned, plan):
            if plan.averaging and step > plan.averaging[0] and step % plan.averaging[1] == 0:
                average.add()
            if plan.patience is not None and (step % CHECK_STEPS == 0 or step == plan.steps):
                best.note(step, _divergence(student, examples, targets, held))
                if step - best.step >= plan.patience:
                    break
        best.restore()
        average.restore()
        if plan.patience is None:  # nobody has looked at it so far
            _divergence(student, examples, targets, held[:1])
    clear(list(parameters.values()))


def _steps(
    student: nn.Module, examples: Examples, targets: Tensor, rows: Tensor, plan: Distillation
) -> Iterator[int]:
    """Take the steps, and give the number of each."""
    parameters = dict(student.named_parameters())
    adam = AdamOptimizer(parameters, plan.lr, (0.9, 0.999), 1e-8, plan.weight_decay, decoupled=False)
    sgd = SGD(parameters.values(), plan.lr, plan.momentum, plan.weight_decay)
    order = batches(len(rows), plan.batch_size, plan.seed, device=rows.device)
    with closing(examples.stream(rows[index] for index in islice(order, plan.steps))) as stream:
        for step, (index, features, _) in enumerate(stream):
            clear(list(parameters.values()))
            torch.autograd.backward(divergence(targets[index], student(features)))
            make_dense(parameters.values())
            if plan.gradient_clip is not None:
                nn.utils.clip_grad_norm_(parameters.values(), plan.gradient_clip)
            if plan.cosine:
                adam.lr = plan.lr * 0.5 * (1 + math.cos(math.pi * step / plan.steps))
            (adam if plan.optimizer == "adam" else sgd).step()
            yield step + 1


def _train_holdout_split(n: int, plan: Distillation, device: torch.device) -> tuple[Tensor, Tensor]:
    """Places of the examples that are learned and of those that are held out; a single one is both."""
    if plan.patience is None or n == 1:
        return torch.arange(n, device=device), torch.arange(n, device=device)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(plan.seed)).to(device)
    held = max(1, int(HELD_OUT * n))
    return order[held:], order[:held]


@torch.no_grad()
def _divergence(student: nn.Module, examples: Examples, targets: Tensor, rows: Tensor) -> float:
    total = 0.0
    with closing(examples.stream(torch.split(rows, 512))) as stream:
        for index, features, _ in stream:
            total += divergence(targets[index], student(features)).item() * len(index)
    if not math.isfinite(total):
        raise MethodError("distillation: has diverged; lower learningRate of spec.method.config")
    return total / len(rows)


class _BestWeights:
    """The weights of the lowest divergence so far."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.step, self._value, self._of = 0, math.inf, parameters
        self._weights: dict[str, Tensor] = {}

    def note(self, step: int, value: float) -> None:
        """Keep the present weights if this, their divergence, is the lowest."""
        if value < self._value:
            self.step, self._value = step, value
            self._weights = {name: parameter.detach().clone() for name, parameter in self._of.items()}

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to them, if any were noted."""
        for name, weight in self._weights.items():
            self._of[name].copy_(weight)


class _Average:
    """The mean of the weights at some steps."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._count, self._of = 0, parameters
        self._means: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self) -> None:
        """Count the present weights in."""
        self._count += 1
        for name, parameter in self._of.items():
            before = self._means.get(name, parameter)
            self._means[name] = before + (parameter - before) / self._count

    @torch.no_grad()
    def restore(self) -> None:
        """Take the mean, if any were counted in."""
        for name, mean in self._means.items():
            self._of[name].copy_(mean)
