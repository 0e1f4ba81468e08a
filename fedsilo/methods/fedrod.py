"""FedROD trains a generic head that balances the classes, and a private one that corrects it.

Chen, Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification", ICLR 2022, Section 4.
The classifier is linear, and so is the private head: the silo's own predictor, their sum, is the common architecture
with the weights of both added.

The private head begins as the classifier that the silo is first given. A class that the silo lacks takes no part
in its balanced softmax. PFLlib's code is the printed form.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.restricted_softmax import class_counts
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import PERSONAL_TREE, MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.state import State, Tree
from fedsilo.methods.traits import AveragingTraits, StateTraits

if TYPE_CHECKING:
    from torch import nn

    from fedsilo.learning.training import Loss

HEAD = "head"
"""Tree of private state: weight (C, d) and, where the classifier has one, bias (C,) of the private head."""


class FedRODConfig(MethodConfig):
    """Settings of FedROD in a job's `spec.method.config`."""

    variant: Literal["paper", "map"] = Field(
        default="paper",
        description="paper: balanced softmax of z_G + log n_c; the private head alone follows the loss of z_G + z_P. "
        "map: (4 n_c / n)^gamma z_G, and the mean of both heads, whose loss all parts follow; uniform means [paper, "
        "Section 4; MAP's released code].",
    )
    gamma: float = Field(
        default=0.5,
        ge=0,
        le=10,
        description="Power of the class shares in variant map [MAP's released code].",
    )


class FedROD(FedAvg):
    """Declaration of FedROD, whose silos keep a private head each."""

    name = "fedrod"
    title = "A generic head with balanced classes, and a private one"
    citation = (
        "H.-Y. Chen, W.-L. Chao. On Bridging Generic and Personalized Federated Learning for Image Classification. "
        "ICLR 2022."
    )
    keeps = StateTraits(silo="its private head and its own model")
    Config = FedRODConfig
    averaging = AveragingTraits(uniform_variants=("map",))
    models = JobModels(
        SharedModel(whole="a silo's own model is the whole model with another classifier"), OwnModel()
    )
    config: FedRODConfig

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k and the private head from w and the head's last value, by the sum of both losses."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            from fedsilo.learning.models import load_tree, to_tree
            from fedsilo.learning.training import fit

            model = silo.model(task.trees["model"])
            head = copy.deepcopy(model.classifier)  # where it begins
            if HEAD in private.trees:
                load_tree(head, private.tree(HEAD))
            parameters = [*model.parameters(), *head.parameters()]
            loss = two_losses(silo, head, self.config)
            report = fit(model, silo.train, silo.local_training(task), loss=loss, parameters=parameters)
            sent, kept = to_tree(model), to_tree(head)
            own = personal_model(sent, kept, 0.5 if self.config.variant == "map" else 1.0)
            state = State({HEAD: kept, PERSONAL_TREE: own})
            return Reply(sent, samples=len(silo.train), metrics={"loss": report.loss}, private=state)

        return {"train": train}


def two_losses(silo: SiloContext, head: nn.Linear, config: FedRODConfig) -> Loss:
    """The balanced loss of the generic head, and the plain one of both heads together.

    A class without an example has log 0, takes no part in the balanced softmax, and is never named.
    """
    import torch
    from torch import Tensor
    from torch.nn import functional

    from fedsilo.learning.models import Model

    counts = torch.tensor(class_counts(silo), dtype=torch.float32, device=silo.train.labels.device)
    shares, logs = 4 * counts / counts.sum(), counts.log()

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        phi = model.features(features)
        generic = model.classifier(phi)
        if config.variant == "map":
            balanced, own = shares**config.gamma * generic, (generic + head(phi)) / 2
        else:
            balanced, own = generic + logs, generic.detach() + head(phi.detach())
        return functional.cross_entropy(balanced, labels) + functional.cross_entropy(own, labels)

    return loss


def personal_model(model: Mapping[str, np.ndarray], head: Mapping[str, np.ndarray], scale: float) -> Tree:
    """The model whose logits are those of both heads, added and scaled."""
    scaled = np.float32(scale)
    both = {
        f"classifier.{name}": scaled * (model[f"classifier.{name}"] + array) for name, array in head.items()
    }
    return {**model, **both}
