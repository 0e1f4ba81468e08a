"""Training a linear classifier on features that are already there, as calibration methods do at the aggregator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from fedsilo.learning.examples import batches
from fedsilo.learning.sgd import SGD


@dataclass(frozen=True)
class LinearTraining:
    """SGD on the cross-entropy of a linear layer.

    :param weight_decay: coefficient of the L2 term of weight and bias.
    :param epochs: passes over the features, each in a new order.
    :param max_steps: stop after so many steps; None is no limit.
    """

    lr: float
    epochs: int
    batch_size: int
    momentum: float = 0.0
    weight_decay: float = 0.0
    max_steps: int | None = None
    shuffle: bool = True
    seed: int = 0


def train_classifier(
    weight: np.ndarray,
    bias: np.ndarray | None,
    features: np.ndarray,
    labels: np.ndarray,
    plan: LinearTraining,
) -> dict[str, np.ndarray]:
    """`classifier.weight` (C, d) and, where there is one, `classifier.bias` (C,) after training.

    Classes that no label names take no part in the softmax: nothing is known of them, so nothing is learned. Their
    weights stay what they were, also where there is weight decay.

    :param features: (n, d), float32.
    :param labels: (n,), integers below C.
    """
    given = [array for array in (weight, bias) if array is not None]
    parameters = [torch.tensor(array, requires_grad=True) for array in given]
    inputs, targets = torch.tensor(features), torch.tensor(labels, dtype=torch.int64)
    absent = torch.ones(len(weight), dtype=torch.bool)
    absent[targets] = False
    optimizer = SGD(parameters, plan.lr, plan.momentum, plan.weight_decay)
    for step, index in enumerate(batches(len(targets), plan.batch_size, plan.seed, plan.shuffle)):
        if step >= _steps(len(targets), plan):
            break
        logits = functional.linear(inputs[index], *parameters).masked_fill(absent, -torch.inf)
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(logits, targets[index]))
        optimizer.step()
    with torch.no_grad():
        for parameter, before in zip(parameters, given, strict=True):
            parameter[absent] = torch.tensor(before)[absent]
    names = ("classifier.weight", "classifier.bias")
    return {name: parameter.detach().numpy() for name, parameter in zip(names, parameters, strict=False)}


def _steps(n: int, plan: LinearTraining) -> int:
    steps = plan.epochs * -(-n // plan.batch_size)
    return steps if plan.max_steps is None else min(steps, plan.max_steps)
