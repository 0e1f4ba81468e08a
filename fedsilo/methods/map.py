"""MAP trains the common model by restricted softmax, and gives each silo an inherited private model of its own.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes", Algorithm 1.
The algorithm returns the private model to the server too; here it stays in the silo, since nothing there needs it.

Half of the local steps are with restricted softmax, for the model that is sent; the other half are on a copy,
taught by the private model, for the silo's own. In `variant: released` the personal steps are a tenth as many at a
fifth of the rate, with means by samples; otherwise the mean is uniform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from typing_extensions import override

from fedsilo.methods.components.inherited import InheritingServer, inherited_models
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.two_stages import (
    CITATION,
    SecondStage,
    TwoStageConfig,
    first_loss,
    personalise,
    stages,
    traits_of,
)
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import Reply, ServerHalf, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.traits import AveragingTraits, StateTraits, TrainingTraits

RELEASED_STAGE = SecondStage(part=0.1, rate=0.2)


class MAP(OneModel):
    """Declaration of MAP, whose silos train the common model and then a private one."""

    name = "map"
    title = "Aggregation by restricted softmax, personalisation by inherited private models"
    use_when = "silos lack classes and want a model of their own beside the common one"
    citation = CITATION
    keeps = StateTraits(silo="its private model and how many rounds it took part in")
    Config = TwoStageConfig
    averaging = AveragingTraits(uniform_variants=("paper", "complete"))
    config: TwoStageConfig

    @property
    @override
    def models(self) -> JobModels:
        """The common model, and the private ones."""
        return inherited_models(self.config)

    @property
    @override
    def training(self) -> TrainingTraits:
        return traits_of(self.config)

    @override
    def server(self) -> ServerHalf[Sums]:
        """The averaging half, with Q."""
        return InheritingServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k from w under restricted softmax, which is sent; from w_k the silo's own under plain softmax."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            first, second = stages(silo, task, self.config, RELEASED_STAGE)
            reply = train_model(silo, task, private, loss=first_loss(silo, self.config), plan=first)
            return replace(
                reply, private=personalise(silo, task, private, reply.tensors, second, self.config)
            )

        return {"train": train}
