"""FedMMD is federated averaging whose silos keep their features distributed as those of the model they were given.

Yao, Huang, Sun, "Two-Stream Federated Learning: Reduce the Communication Costs", VCIP 2018: beside the model
in training stands the given one, fixed, and the distance of their features is the squared maximum mean discrepancy with
several Gaussian kernels.

The distance counts `discrepancyWeight` times in the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import ONE_FEATURE, TaskTraits, TrainingTraits

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss


class FedMMDConfig(MethodConfig):
    """Settings of FedMMD in a job's `spec.method.config`."""

    discrepancy_weight: float = Field(
        default=0.01,
        ge=0,
        description="lambda, weight of MMD^2; 0 is FedAvg [MAP's released code: 0.001, 0.01, 0.1].",
    )


class FedMMD(FedAvg):
    """Declaration of FedMMD, which differs from FedAvg in the silos' loss."""

    name = "fedmmd"
    title = "Federated averaging with a discrepancy of features"
    citation = (
        "X. Yao, C. Huang, L. Sun. Two-Stream Federated Learning: Reduce the Communication Costs. VCIP 2018."
    )
    tasks = TaskTraits(ONE_FEATURE, "it compares the one feature of each example with that of another model")
    Config = FedMMDConfig
    config: FedMMDConfig
    training = TrainingTraits(data_parallel=False)  # the discrepancy is one of whole batches

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the task's loss and lambda MMD^2."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            loss = two_stream_loss(silo, task.trees["model"], self.config.discrepancy_weight)
            return train_model(silo, task, private, loss=loss)

        return {"train": train}


def two_stream_loss(silo: SiloContext, given: Mapping[str, np.ndarray], weight: float) -> Loss:
    """L + lambda MMD^2(phi(x), phi_g(x)); phi_g are the given model's features, in evaluation mode."""
    import torch
    from torch import Tensor

    from fedsilo.learning.models import Model
    from fedsilo.learning.transfer import mmd

    fixed, learning_task = silo.model(given).eval(), silo.learning_task
    weights = learning_task.class_weights(silo.train.labels)

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        z = model.features(features)
        with torch.no_grad():
            other = fixed.features(features)
        return learning_task.loss(model.classifier(z), labels, weights) + weight * mmd(z, other)

    return loss
