"""FedMix-local is federated averaging whose silos mix their examples with means of their own examples.

Yoon, Shin, Hwang, Yang, "FedMix: Approximation of Mixup under Mean Augmented Federated Learning", ICLR 2021.
The paper's silos exchange means of raw inputs. Here such means are made and used inside one silo, of its own examples,
and nothing but the model leaves it: what is left of the paper is its loss.

Examples are mixed, to first order, with means of `averaged` examples each, drawn anew from the job's seed and
never stored; every example is in one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import StateTraits, TrainingTraits

if TYPE_CHECKING:
    from torch import Tensor

    from fedsilo.learning.models import Model
    from fedsilo.learning.training import Loss


class FedMixConfig(MethodConfig):
    """Settings of FedMix-local in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: the last term is lambda <dl/dx, x_m>, of each example. released: 1 - lambda times that, "
        "divided by the batch size once more [paper; FedBR's released code].",
    )
    mean_weight: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="lambda, the part of the mean; 0 is FedAvg [FedBR's released code].",
    )
    averaged: int = Field(
        default=10, ge=1, le=10_000, description="Examples M in a mean [FedBR's released code]."
    )


class FedMix(FedAvg):
    """Declaration of FedMix-local, which differs from FedAvg in the silos' loss."""

    name = "fedmix"
    title = "FedMix-local: federated averaging with examples mixed with means, inside the silo"
    citation = (
        "T. Yoon, S. Shin, S. J. Hwang, E. Yang. FedMix: Approximation of Mixup under Mean Augmented Federated "
        "Learning. ICLR 2021."
    )
    keeps = StateTraits(silo="nothing; its means follow from its examples and its seed")
    Config = FedMixConfig
    config: FedMixConfig
    training = TrainingTraits(
        refuses_float16="whose loss has a gradient in it, which float16 would lose",
        data_parallel=False,  # means are drawn for whole batches
    )

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the loss of examples and means."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            loss = mixed_with_means(silo, task, self.config)
            return train_model(silo, task, private, loss=loss)

        return {"train": train}


def mixed_with_means(silo: SiloContext, task: SiloTask, config: FedMixConfig) -> Loss:
    """(1 - l) CE(f(u), y) + l CE(f(u), y_m) + l <d CE(f(u), y) / du, x_m>, u = (1 - l) x.

    (x_m, y_m) is a mean, drawn for each example and step from the silo's seed of the round. What is mixed is the
    encoder's input, behind the job's preprocessing.
    """
    import torch
    from torch.nn import functional

    part, rest = config.mean_weight, 1 - config.mean_weight
    inputs, targets = means_of(silo, silo.model(task.trees["model"]), config.averaged)
    generator = torch.Generator().manual_seed(silo.seed("means", task.phase, task.round))

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        drawn = torch.randint(len(inputs), (len(labels),), generator=generator).to(labels.device)
        mixed = (rest * _preprocessed_inputs(model, features)).requires_grad_()
        logits = model.classifier(model.encoder(mixed))
        own = functional.cross_entropy(logits, labels)
        value = rest * own + part * functional.cross_entropy(logits, targets[drawn])
        if not part:
            return value
        # The gradient of a mean over the batch: summed over the examples, their products are a mean already.
        (gradient,) = torch.autograd.grad(own, mixed, create_graph=True)
        product = (gradient * inputs[drawn]).sum()
        return value + part * (product if config.variant == "paper" else rest * product / len(labels))

    return loss


def means_of(silo: SiloContext, model: Model, averaged: int) -> tuple[Tensor, Tensor]:
    """Means of so many of the silo's examples each, and of their labels: (m, *input shape) and (m, C).

    Each example is in one of them; a few that are left over are in none, unless they are all that there are.
    """
    import torch
    from torch.nn import functional

    examples = silo.train
    order = np.random.default_rng(silo.seed("means")).permutation(len(examples))
    groups = [order[k : k + averaged] for k in range(0, max(len(order) - averaged, 0) + 1, averaged)]
    inputs, labels = [], []
    with torch.no_grad():
        for group in groups:
            features, classes = examples.batch(torch.from_numpy(group).to(examples.labels.device))
            inputs.append(_preprocessed_inputs(model, features).mean(dim=0))
            labels.append(functional.one_hot(classes, silo.signature.classes).float().mean(dim=0))
    return torch.stack(inputs), torch.stack(labels)


def _preprocessed_inputs(model: Model, features: Tensor) -> Tensor:
    return features if model.preprocessing is None else model.preprocessing(features)
