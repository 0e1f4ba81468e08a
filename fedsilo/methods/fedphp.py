"""FedPHP is federated averaging whose silos keep, and learn from, an inherited private model.

Li, Zhan, Shao, Li, Song, "FedPHP: Federated Personalization with Inherited Private Models", ECML-PKDD 2021. The silo's
private model teaches the downloaded one while that is trained; after that it takes over part of it.

The loss is (1 - `transferWeight`) CE + `transferWeight` L_kt. In its first round a silo has no teacher, and the
trained model becomes its private model. Q T is the fraction of the silos that a round draws, in whole silos (1/3
at `fraction: 0.1` of three silos), times the rounds of the phase; the task contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.inherited import (
    InheritedConfig,
    InheritingServer,
    inherit,
    inherited_models,
    transfer_loss,
)
from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import Reply, ServerHalf, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.traits import StateTraits, TrainingTraits


class FedPHPConfig(InheritedConfig):
    """Settings of FedPHP in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: kd is tau^2 KL of tempered outputs; a silo's first round has no teacher; mu_k is at most "
        "1. released: cross-entropy against untempered outputs; the initial model teaches first; mu_k counts earlier "
        "rounds only and is at most mu [paper; released code].",
    )

    @property
    @override
    def released(self) -> bool:
        """Whether everything is as in the released code."""
        return self.variant == "released"


class FedPHP(OneModel):
    """Declaration of FedPHP, whose silos keep a private model each."""

    name = "fedphp"
    title = "Personalisation with inherited private models"
    citation = (
        "X.-C. Li, D.-C. Zhan, Y. Shao, B. Li, S. Song. FedPHP: Federated Personalization with Inherited Private "
        "Models. ECML-PKDD 2021."
    )
    keeps = StateTraits(silo="its private model and how many rounds it took part in")
    Config = FedPHPConfig
    config: FedPHPConfig

    @property
    @override
    def models(self) -> JobModels:
        """The common model, and the private ones."""
        return inherited_models(self.config)

    @property
    @override
    def training(self) -> TrainingTraits:
        """MMD is one of whole batches."""
        return TrainingTraits(data_parallel=self.config.transfer != "mmd")

    @override
    def server(self) -> ServerHalf[Sums]:
        """The averaging half, with Q."""
        return InheritingServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k from w under (1 - lambda) CE + lambda L_kt(p_k), then p_k from w_k."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            reply = train_model(silo, task, private, loss=transfer_loss(silo, private, self.config))
            return replace(reply, private=inherit(silo, task, private, reply.tensors, self.config))

        return {"train": train}
