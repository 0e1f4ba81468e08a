"""Fed-Focal Loss is federated averaging of the focal loss, for silos whose classes are unbalanced.

Sarkar, Narang, Rai, "Fed-Focal Loss for Imbalanced Data Classification in Federated Learning", 2020: the
cross-entropy of an example is weighed down by how well it is predicted already. The paper also prefers silos that do
badly when it draws those of a round; here a job's participation alone decides that.

The cross-entropy is multiplied by (1 - p_y)^`gamma`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import TaskTraits

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss

SMALLEST_PROBABILITY = 1e-30
"""Smallest 1 - p_y: below gamma = 1 the power of zero has an endless slope."""


class FedFocalConfig(MethodConfig):
    """Settings of Fed-Focal Loss, its focusing exponent gamma."""

    gamma: float = Field(
        default=2.0, ge=0, le=100, description="Focusing exponent; 0 is the cross-entropy [paper]."
    )


class FedFocal(FedAvg):
    """Declaration of Fed-Focal Loss."""

    name = "fed-focal"
    title = "Federated averaging with the focal loss"
    citation = (
        "D. Sarkar, A. Narang, S. Rai. Fed-Focal Loss for Imbalanced Data Classification in Federated Learning. "
        "arXiv 2020."
    )
    tasks = TaskTraits(needs_features=False)
    Config = FedFocalConfig
    config: FedFocalConfig

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the focal loss."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train_model(silo, task, private, loss=focal_loss(self.config.gamma))

        return {"train": train}


def focal_loss(gamma: float) -> Loss:
    """Mean of (1 - p_y)^gamma (-log p_y), p = softmax(z)."""
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        cross_entropy = functional.cross_entropy(model(features), labels, reduction="none")
        missing = -torch.expm1(-cross_entropy)  # 1 - p_y, precise near zero
        return (missing.clamp_min(SMALLEST_PROBABILITY) ** gamma * cross_entropy).mean()

    return loss
