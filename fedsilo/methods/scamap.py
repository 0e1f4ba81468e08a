"""ScaMAP is MAP whose common model is trained with SCAFFOLD's control variates.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes".
Control variates follow from the first stage only, whose result is sent.

Corrected steps have no momentum, as in scaffold (docs/methods/scaffold.md), so that they are shorter at the same
rate; the second stage uses the job's momentum and the same rate. The private model stays in the silo. In `variant:
released` the personal steps are a fifth as many at half the rate, with means by samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.control_variates import MAP_CODE, ControlVariateRule, train_controlled
from fedsilo.methods.components.controlled_averaging import BY_STEPS, ControlledServer
from fedsilo.methods.components.inherited import inherited_models, with_drawn_part
from fedsilo.methods.components.local_steps import stepping
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
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
)
from fedsilo.methods.models import JobModels
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.step import Step
from fedsilo.methods.traits import SGD, AveragingTraits, StateTraits, TrainingTraits

RELEASED_STAGE = SecondStage(part=0.2, rate=0.5)


class ScaMAPConfig(TwoStageConfig):
    """Settings of MAP, and the server's step."""

    server_learning_rate: float = Field(
        default=0.9, gt=0, le=10, description="Step eta_g of the server [MAP: 0.9]."
    )

    @property
    def rule(self) -> ControlVariateRule:
        """The arithmetic of control variates: printed, or of the released code."""
        return MAP_CODE if self.released else ControlVariateRule()


class ScaMAPServer(ControlledServer):
    """Averaging with control variates, for silos that inherit. Trees: `model` (w) and `control` (c)."""

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w and c, and Q for the silos' schedule of mu_k."""
        return with_drawn_part(job, super().assign(job, state, exchange, silos))


class ScaMAP(OneModel):
    """Declaration of ScaMAP, with control variates, and a private model in each silo."""

    name = "scamap"
    title = "MAP with control variates"
    citation = CITATION
    keeps = StateTraits(
        "the model and the control variate c",
        "its private model, its control variate c_k and how many rounds it took part in",
    )
    Config = ScaMAPConfig
    averaging = AveragingTraits("uniform")
    config: ScaMAPConfig

    @property
    @override
    def models(self) -> JobModels:
        """The common model, and the private ones."""
        return inherited_models(self.config)

    @property
    @override
    def training(self) -> TrainingTraits:
        """Two stages, of which the first corrects gradients."""
        return replace(traits_of(self.config), optimizers=SGD)

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model and the number of steps of the first stage, from which the variate's change follows."""
        return {"train": stepping(self.spec.training, BY_STEPS)}

    @override
    def server(self) -> ServerHalf[Sums]:
        """Model and control variate, with Q."""
        return ScaMAPServer(self.config.rule, self.config.server_learning_rate)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k from w with corrected steps under restricted softmax; then the second stage as in MAP."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            first, second = stages(silo, task, self.config, RELEASED_STAGE)
            reply = train_controlled(
                silo, task, private, self.config.rule, loss=first_loss(silo, self.config), plan=first
            )
            assert reply.private is not None, "train_controlled keeps c_k"
            own = personalise(silo, task, private, reply.tensors, second, self.config)
            return replace(reply, private=own.with_trees(control=reply.private.tree("control")))

        return {"train": train}
