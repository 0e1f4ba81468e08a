"""Softmax that a silo adapts to its own classes while it trains: logits scaled or shifted by class.

Restricted softmax: Li, Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data",
KDD 2021. A class that no local example names is pushed away by every step; a smaller logit is pushed less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from fedsilo.methods.interface import SiloContext

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss

Scaling = Literal["mask", "frequency", "share", "sole"]


def class_counts(silo: SiloContext) -> np.ndarray:
    """Numbers n_k^c of the silo's training examples by class, (C,) int64."""
    return np.bincount(silo.train.labels.cpu().numpy(), minlength=silo.signature.classes)


def class_scales(counts: np.ndarray, alpha: float, scaling: Scaling) -> np.ndarray:
    """(C,) float32 factors s_c of the logits, from the silo's counts n_c.

    :param alpha: factor of a class that the silo lacks.
    :param scaling: mask: 1 for every class that is there. frequency: alpha + (1 - alpha) n_c / max n. share:
        n_c / n, without alpha, for silos that have all classes. sole: 1 for a class that all examples are of.
    """
    if scaling == "mask":
        scales = np.where(counts > 0, 1.0, alpha)
    elif scaling == "sole":
        scales = np.where(counts == counts.sum(), 1.0, alpha)
    elif scaling == "frequency":
        scales = alpha + (1 - alpha) * counts / counts.max()
    else:
        scales = counts / counts.sum()
    return scales.astype(np.float32)


def restricted_loss(silo: SiloContext, scales: np.ndarray) -> Loss:
    """Cross-entropy of s_c z_c; where the classifier has a bias it is scaled with the logit it belongs to."""
    import torch
    from torch import Tensor
    from torch.nn import functional

    from fedsilo.learning.models import Model

    factors = torch.tensor(scales, device=silo.train.labels.device)

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(factors * model(features), labels)

    return loss


def shifted_loss(silo: SiloContext, shifts: np.ndarray) -> Loss:
    """Cross-entropy of z_c + s_c; a class with s_c = -inf, which no label names, takes no part in the softmax."""
    import torch
    from torch import Tensor
    from torch.nn import functional

    from fedsilo.learning.models import Model

    added = torch.tensor(shifts, device=silo.train.labels.device)

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(features) + added, labels)

    return loss
