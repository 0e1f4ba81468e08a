"""MOON is model-contrastive federated learning.

Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1: beside its loss a silo draws the
representation of each example towards that of the model that it was given, and away from that of its own last model.
The representation is the classifier's input; the paper's has a projection head below it, which is
`spec.model.config.projection`.

The contrastive loss counts `mu` times, and keeps away from the last `previousModels` models. In a silo's first
round there is no previous model, and the term is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import ONE_FEATURE, StateTraits, TaskTraits

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss


class MoonConfig(MethodConfig):
    """Settings of MOON in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: every example in every epoch. released: an incomplete last batch is left out [paper, "
        "Algorithm 1; released code].",
    )
    mu: float = Field(
        default=1.0,
        ge=0,
        description="Weight of the contrastive loss [released code; paper: 0.1, 1, 5 or 10, 5 for CIFAR-10].",
    )
    temperature: float = Field(default=0.5, gt=0, description="Temperature tau [paper, Section 4.1].")
    previous_models: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Models of its last trainings that a silo keeps and keeps away from, one more logit for each "
        "[paper: 1; released code: model_buffer_size, first in, first out].",
    )


class Moon(FedAvg):
    """Declaration of MOON, whose silos keep the models of their last trainings."""

    name = "moon"
    title = "Model-contrastive federated learning"
    citation = "Q. Li, B. He, D. Song. Model-Contrastive Federated Learning. CVPR 2021."
    keeps = StateTraits(silo="the model of its last training, or of as many as previousModels says")
    tasks = TaskTraits(ONE_FEATURE, "it draws the one feature of each example towards those of other models")
    Config = MoonConfig
    config: MoonConfig

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy and mu times the contrastive loss; w_k is kept.

        In private state the newest model is `model`, and the one of j trainings earlier `model-j`.
        """
        names = ["model", *(f"model-{age}" for age in range(1, self.config.previous_models))]

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            previous = [private.tree(name) for name in names if name in private.trees]
            loss = contrastive_loss(silo, self.config, task.trees["model"], previous)
            plan = replace(silo.local_training(task), drop_last=self.config.variant == "released")
            reply = train_model(silo, task, private, loss=loss, plan=plan)
            # One more of them than names: the oldest falls out.
            return replace(reply, private=State(dict(zip(names, [reply.tensors, *previous], strict=False))))

        return {"train": train}


def contrastive_loss(
    silo: SiloContext,
    config: MoonConfig,
    given: Mapping[str, np.ndarray],
    previous: Sequence[Mapping[str, np.ndarray]],
) -> Loss:
    """L + mu times the mean of -log(e^(cos(z, z_g) / tau) / (e^(cos(z, z_g) / tau) + sum_p e^(cos(z, z_p) / tau))).

    L is the learning task's loss; z_g and z_p are the given and the silo's previous models' representations, fixed, in
    evaluation mode.

    :param previous: none before the silo's first training: nothing to keep away from, and the term is zero.
    """
    import torch
    from torch import Tensor
    from torch.nn import functional

    from fedsilo.learning.models import Model

    if not previous:
        return silo.loss()
    learning_task = silo.learning_task
    weights = learning_task.class_weights(silo.train.labels)
    fixed = [silo.model(tree).eval() for tree in (given, *previous)]

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        z = model.features(features)
        with torch.no_grad():
            others = [other.features(features) for other in fixed]
        cosines = torch.stack([functional.cosine_similarity(z, other, dim=1) for other in others], dim=1)
        near = torch.zeros(len(labels), dtype=torch.int64, device=labels.device)
        contrast = functional.cross_entropy(cosines / config.temperature, near)
        return learning_task.loss(model.classifier(z), labels, weights) + config.mu * contrast

    return loss
