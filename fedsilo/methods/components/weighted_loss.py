"""Cross-entropy in which classes weigh differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss


def class_weighted_loss(weights: np.ndarray) -> Loss:
    """Mean over the batch of a_y CE; divided by the number of examples, not by the sum of their weights.

    :param weights: a (C,).
    """
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    of_class = torch.tensor(weights, dtype=torch.float32)

    def loss(module: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        each = functional.cross_entropy(module(features), labels, reduction="none")
        return (each * of_class.to(labels.device)[labels]).mean()

    return loss
