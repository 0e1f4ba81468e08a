"""ScaMAP: MAP whose common model is trained with SCAFFOLD's control variates.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes".
Control variates follow from the first stage alone, the one whose result is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Payload,
    Reply,
    ServerContext,
    SiloContext,
    SiloStep,
    SiloTask,
    Step,
)
from fedsilo.methods.map import MAP
from fedsilo.methods.pieces.control_variates import train_controlled
from fedsilo.methods.pieces.inherited import telling_what_is_drawn
from fedsilo.methods.pieces.two_stages import Afterwards, TwoStageConfig, first_loss, personalise, stages
from fedsilo.methods.scaffold import ScaffoldConfig, ScaffoldServer
from fedsilo.methods.state import State

RELEASED = Afterwards(part=0.2, rate=0.5)


class ScaMAPConfig(TwoStageConfig):
    """Settings of MAP, and the server's step."""

    server_learning_rate: float = Field(
        default=0.9, gt=0, le=10, description="Step eta_g of the server [MAP: 0.9]."
    )

    @property
    def scaffold(self) -> ScaffoldConfig:
        """SCAFFOLD's settings; its released form is that of the same code."""
        variant = "released" if self.released else "paper"
        return ScaffoldConfig(variant=variant, server_learning_rate=self.server_learning_rate)


class ScaMAPServer(ScaffoldServer):
    """SCAFFOLD's half."""

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w and c, and Q for the silos' schedule of mu_k."""
        return telling_what_is_drawn(job, super().assign(job, state, exchange, silos))


class ScaMAP(FedAvg):
    """Declaration of ScaMAP."""

    name = "scamap"
    title = "MAP with control variates"
    citation = MAP.citation
    at_aggregator = "the model and the control variate c"
    in_silo = "its private model, its control variate c_k and how many rounds it took part in"
    Config = ScaMAPConfig
    weights = "uniform"

    def steps(self, config: ScaMAPConfig) -> Mapping[str, Step]:
        """The model and the number of steps of the first stage, from which the variate's change follows."""
        return {"train": Step((Payload("model"),), ("loss", "steps"))}

    def server(self, config: ScaMAPConfig) -> ScaMAPServer:
        """SCAFFOLD's half, and Q."""
        return ScaMAPServer(config.scaffold)

    def personalises(self, config: ScaMAPConfig) -> bool:
        """Every silo that took part has its private model."""
        return True

    def silo(self, config: ScaMAPConfig) -> Mapping[str, SiloStep]:
        """w_k from w with corrected steps under restricted softmax; then the second stage as in MAP."""
        rule = config.scaffold.rule

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            first, second = stages(silo, task, config, RELEASED)
            reply = train_controlled(silo, task, private, rule, loss=first_loss(silo, config), plan=first)
            assert reply.private is not None, "train_controlled keeps c_k"
            own = personalise(silo, task, private, reply.tensors, second, config)
            return replace(reply, private=own.with_trees(control=reply.private.tree("control")))

        return {"train": train}


METHOD = ScaMAP()
