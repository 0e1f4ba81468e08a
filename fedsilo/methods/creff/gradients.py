"""Mean gradients of a linear classifier per class, in a silo and over silos.

Equations 3 and 4 of the paper. The gradient of the cross-entropy with respect to a linear layer has a closed form,
(p - e_c) phi^T, so all classes are computed at once, without a graph per class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor
from torch.nn import functional

from fedsilo.methods.creff.config import BIAS, WEIGHT
from fedsilo.methods.reading import Sums


class ClassGradients(NamedTuple):
    """Gradient of the cross-entropy of one class with respect to the head's weight (C, d) and bias (C,)."""

    weight: np.ndarray
    bias: np.ndarray


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


def bias_of(head: Mapping[str, np.ndarray]) -> np.ndarray:
    """The head's bias (C,), zeros where it has none."""
    return head.get("classifier.bias", np.zeros(len(head["classifier.weight"]), np.float32))


def mean_gradients(sums: Sums, released: bool) -> dict[int, ClassGradients]:
    """Class -> gradient averaged over the silos that sent it, every silo alike (eq. 4).

    The bias's is zero where silos do not send it; a class of which one of the two is missing is left out.
    """
    means = sums.combine("averaged_gradients")
    found = {}
    for label in sorted({int(name.rpartition("/")[2]) for name in means}):
        weight, bias = means.get(f"{WEIGHT}/{label}"), means.get(f"{BIAS}/{label}")
        if weight is not None and not released:
            bias = np.zeros(len(weight), np.float32)
        if weight is not None and bias is not None:
            found[label] = ClassGradients(weight, bias)
    return found
