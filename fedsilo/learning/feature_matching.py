"""Gradients of a linear classifier per class, and features that are made to have given gradients.

Shang, Lu, Huang, Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features" (CReFF), IJCAI 2022, equations 3 to 6. The gradient of the cross-entropy with respect to a
linear layer has a closed form, (p - e_c) phi^T, so all classes are computed at once, without a graph per class.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedsilo.learning.sgd import SGD

EPSILON = 1e-6
"""Added to the product of norms in the cosine, so that a zero gradient has a cosine of zero."""


def class_gradients(features: Tensor, labels: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Mean gradient of the cross-entropy of each class, with respect to weight and bias (eq. 3 and 4).

    :param features: (G, m, d): G groups of m features, each group of one class.
    :param labels: (G,) class of each group.
    :returns: (G, C, d) and (G, C).
    """
    errors = functional.linear(features, weight, bias).softmax(dim=-1)
    errors = errors - functional.one_hot(labels, len(weight)).to(errors.dtype)[:, None, :]
    count = features.shape[1]
    return errors.transpose(1, 2) @ features / count, errors.mean(dim=1)


def matching_loss(
    found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], *, released: bool = False
) -> Tensor:
    """Dissimilarity of gradients, summed over groups (eq. 6).

    Printed: the mean over the C rows of the weight of 1 - cosine. Released code: their sum, and one more
    1 - cosine for the bias as a single row.

    :param found: (G, C, d) and (G, C); likewise `wanted`.
    """
    rows = 1 - _cosine(found[0], wanted[0])
    if not released:
        return rows.mean(dim=1).sum()
    return rows.sum() + (1 - _cosine(found[1], wanted[1])).sum()


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
    descent = SGD([moving], lr)
    for _ in range(steps):
        descent.clear()
        loss = matching_loss(class_gradients(moving, labels, weight, bias), wanted, released=released)
        torch.autograd.backward(loss)
        descent.step()
    return moving.detach()


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    norms = torch.linalg.vector_norm(one, dim=-1) * torch.linalg.vector_norm(other, dim=-1)
    cosine: Tensor = (one * other).sum(dim=-1) / (norms + EPSILON)
    return cosine
