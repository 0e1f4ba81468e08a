"""FLDA mixes the common model and a private one, in shares that each silo learns by itself.

Peterson, Kanani, Marathe, "Private Federated Learning with Domain Adaptation", 2019. The silo's own predictor is the
mixture. The paper's gate reads the example, here, as in MAP's code, it reads the common model's feature of it.

The silo's own model has the architecture `gated`, which `personal.json` names: two models of the job's
architecture, and a linear gate on the common one's feature. At first the private model is the given one, and both
count equally. The silo keeps the common model as it was after its own training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.api.job import ModelSpec
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import PERSONAL_TREE, MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.state import State, Tree
from fedsilo.methods.traits import AveragingTraits, StateTraits

SHARED, PRIVATE = "shared.", "private."
"""What the names of the mixture's tensors begin with, beside those of its gate."""


class FLDAConfig(MethodConfig):
    """Settings of FLDA in a job's `spec.method.config`."""

    variant: Literal["paper", "map"] = Field(
        default="paper",
        description="paper: probabilities are mixed. map: logits are mixed, and the loss counts twice; uniform means "
        "[paper; MAP's released code].",
    )


class FLDA(FedAvg):
    """Declaration of FLDA, whose silos keep a private model and a gate each."""

    name = "flda"
    title = "A mixture of the common model and a private one"
    citation = (
        "D. Peterson, P. Kanani, V. J. Marathe. Private Federated Learning with Domain Adaptation. 2019."
    )
    keeps = StateTraits(
        silo="its mixture: the common model as it trained it, its private model, and the gate"
    )
    Config = FLDAConfig
    averaging = AveragingTraits(uniform_variants=("map",))
    config: FLDAConfig

    @property
    @override
    def models(self) -> JobModels:
        """The common model, and silos' mixtures: two models of the job's architecture and a gate between them."""
        base = self.spec.model.model_dump(by_alias=True, mode="json", include={"name", "config"})
        mixes = "probabilities" if self.config.variant == "paper" else "logits"
        mixture = ModelSpec(name="gated", config={"base": base, "mixes": mixes})
        return JobModels(SharedModel(whole="a silo's private model is a whole one"), OwnModel(mixture))

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """The mixture's cross-entropy trains w_k, the private model and the gate; only w_k is sent."""
        times = 1 if self.config.variant == "paper" else 2
        architecture = self.models.own_architecture(self.spec)

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            from torch import Tensor, nn
            from torch.nn import functional

            from fedsilo.learning.models import to_tree
            from fedsilo.learning.training import fit

            def loss(mixture: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
                return times * functional.cross_entropy(mixture(features), labels)

            mixture = silo.module(mixture_tree(silo, task.trees["model"], private), architecture)
            report = fit(mixture, silo.train, silo.local_training(task), loss=loss)
            own = to_tree(mixture)
            sent = {name.removeprefix(SHARED): a for name, a in own.items() if name.startswith(SHARED)}
            metrics = {"loss": report.loss}
            return Reply(sent, len(silo.train), metrics, private=State({PERSONAL_TREE: own}))

        return {"train": train}


def mixture_tree(silo: SiloContext, given: Mapping[str, np.ndarray], private: State) -> Tree:
    """The silo's mixture with the given common model; at first the private one is the same, and both count alike."""
    if PERSONAL_TREE in private.trees:
        own = private.tree(PERSONAL_TREE)
    else:
        own = {PRIVATE + name: array for name, array in given.items()}
        own["gate.weight"] = np.zeros((1, silo.signature.feature), np.float32)
        own["gate.bias"] = np.zeros(1, np.float32)
    return {**own, **{SHARED + name: array for name, array in given.items()}}
