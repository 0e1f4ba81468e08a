"""Distance of a model in training to the one that the aggregator handed out, as a term of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedsilo.methods.interface import SiloContext

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss

Distance = Literal["squared", "huber"]


def proximal_loss(
    silo: SiloContext,
    start: Mapping[str, np.ndarray],
    mu: float,
    *,
    distance: Distance = "squared",
    part: str = "",
) -> Loss:
    """The task's loss and a term that pulls parameters towards `start`; its gradient passes through the momentum.

    :param distance: squared: (mu / 2) ||w_k - w||^2. huber: mu times the mean over tensors of the mean Huber loss of
        their elements, with threshold 1; it is smaller by about half the number of parameters.
    :param part: beginning of the names of the parameters that are pulled; all of them by default. BatchNorm's
        running statistics are no parameters.
    """
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    from fedsilo.learning.state_names import named_parameters

    own, device = silo.loss(), silo.train.labels.device
    anchors = {name: torch.tensor(array, device=device) for name, array in start.items()}

    def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        pairs = [
            (w, anchors[name])
            for name, w in named_parameters(model)
            if name.startswith(part) and name in anchors  # what stays in the silo is not pulled
        ]
        if distance == "huber":
            pull = mu * torch.stack([functional.smooth_l1_loss(w, anchor) for w, anchor in pairs]).mean()
        else:
            pull = mu / 2 * torch.stack([(w - anchor).square().sum() for w, anchor in pairs]).sum()
        return own(model, features, labels) + pull

    return loss
