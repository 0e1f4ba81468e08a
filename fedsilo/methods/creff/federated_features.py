"""Federated features at the aggregator: moved until they have the silos' gradients, then learned from.

Equations 5 to 7 of the paper.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedsilo.learning.linear import LinearTraining, train_classifier
from fedsilo.learning.sgd import SGD
from fedsilo.methods.creff.config import CReFFConfig
from fedsilo.methods.creff.gradients import ClassGradients, bias_of, class_gradients
from fedsilo.methods.state import Tree

log = logging.getLogger("fedsilo.methods")

EPSILON = 1e-6
"""Added to the product of norms in the cosine, so that a zero gradient has a cosine of zero."""


def match(
    config: CReFFConfig, features: np.ndarray, head: Tree, wanted: Mapping[int, ClassGradients]
) -> np.ndarray:
    """S after I steps towards the gradients (eq. 5, 6), for the head that the silos used.

    A class that no silo disclosed keeps its features. The optimiser has no momentum, so nothing else is kept.

    :param features: (C, m, d).
    :param wanted: class -> its gradient.
    """
    features, held = np.array(features), sorted(wanted)
    if not held:
        log.warning(
            "no silo disclosed gradients of a class: the federated features stay as they were; lower "
            "minSamplesPerClass of job and silos, if their samples of a class are too few"
        )
        return features
    weights = torch.tensor(np.stack([wanted[label].weight for label in held]))
    biases = torch.tensor(np.stack([wanted[label].bias for label in held]))
    features[held] = match_features(
        torch.tensor(features[held]),
        torch.tensor(held),
        (weights, biases),
        torch.tensor(head["classifier.weight"]),
        torch.tensor(bias_of(head)),
        steps=config.match_steps,
        lr=config.feature_learning_rate,
        released=config.released,
    ).numpy()
    return features


def match_features(
    features: Tensor,
    labels: Tensor,
    wanted: tuple[Tensor, Tensor],
    weight: Tensor,
    bias: Tensor,
    *,
    steps: int,
    lr: float,
    released: bool = False,
) -> Tensor:
    """Features after so many steps of SGD on the matching loss (eq. 5); weight and bias stay as they are.

    :param features: (G, m, d) of the classes whose gradients are known.
    :param wanted: their gradients, (G, C, d) and (G, C).
    """
    moving = features.clone().requires_grad_()
    optimizer = SGD([moving], lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = matching_loss(class_gradients(moving, labels, weight, bias), wanted, released=released)
        torch.autograd.backward(loss)
        optimizer.step()
    return moving.detach()


def matching_loss(
    found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], *, released: bool = False
) -> Tensor:
    """Dissimilarity of gradients, summed over groups (eq. 6).

    Printed: the mean over the C rows of the weight of 1 - cosine. Released code: their sum, and one more
    1 - cosine for the bias as a single row.

    :param found: gradients of weight (G, C, d) and bias (G, C).
    :param wanted: gradients of the same shapes, to which the others are compared.
    """
    rows = 1 - _cosine(found[0], wanted[0])
    if not released:
        return rows.mean(dim=1).sum()
    return rows.sum() + (1 - _cosine(found[1], wanted[1])).sum()


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    norms = torch.linalg.vector_norm(one, dim=-1) * torch.linalg.vector_norm(other, dim=-1)
    cosine: Tensor = (one * other).sum(dim=-1) / (norms + EPSILON)
    return cosine


def retrain(config: CReFFConfig, features: np.ndarray, head: Tree, seed: int) -> Tree:
    """The head trained on all of S and its labels (eq. 7), classes that nobody holds included.

    :param features: (C, m, d).
    :param head: what training starts from. The paper says "initialized as v-tilde" and not what that is; here it is
        the last v-hat, in the released form a new random layer.
    """
    classes, amount, width = features.shape
    labels = np.repeat(np.arange(classes), amount)
    rows = features.reshape(-1, width)
    plan = retraining(config, seed)
    return train_classifier(head["classifier.weight"], head.get("classifier.bias"), rows, labels, plan)


def retraining(config: CReFFConfig, seed: int) -> LinearTraining:
    """300 steps at 0.1 (paper) or 300 epochs at 0.01 (released), without momentum."""
    return LinearTraining(
        lr=config.retrain_learning_rate or (0.01 if config.released else 0.1),
        epochs=config.retrain,
        max_steps=None if config.released else config.retrain,
        batch_size=config.retrain_batch_size,
        seed=seed,
    )
