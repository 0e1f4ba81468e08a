"""SCAFFOLD: federated averaging with control variates against client drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1 with
option II.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fedsilo.manifests.job import FederatedJobSpec
from fedsilo.methods.fedavg import FedAvg, FedAvgServer
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    MethodConfig,
    Payload,
    Phase,
    Reply,
    ServerContext,
    SiloContext,
    SiloStep,
    SiloTask,
    Step,
    Updates,
)
from fedsilo.methods.pieces.buffers import zero_like
from fedsilo.methods.pieces.control_variates import Rule, fold, share, train_controlled
from fedsilo.methods.state import Scalar, State

SIZES = "sizes"
"""Step in which silos state how many samples they have and send nothing, FedDyn's repository."""

RULES: Mapping[str, Rule] = {
    "paper": Rule(),
    "released": Rule(weight_decay=False, base_rate=True, over_sampled=True),
    "niid-bench": Rule(momentum=True, after_step=True),
    "feddyn": Rule(base_rate=True, by_size=True),
}


class ScaffoldConfig(MethodConfig):
    """Settings."""

    variant: Literal["paper", "released", "niid-bench", "feddyn"] = Field(
        default="paper",
        description="paper: steps without momentum; c moves by the changes over all N silos. released: MAP's code, "
        "over the silos of the round, the rate without warm-up in c_k. niid-bench: momentum, corrected after each "
        "step, means by samples. feddyn: c by the silos' sizes [paper, Algorithm 1; released codes].",
    )
    server_learning_rate: float = Field(
        default=1.0, gt=0, le=10, description="Step eta_g of the server [paper: 1; MAP: 0.5, 0.75, 0.9]."
    )

    @property
    def rule(self) -> Rule:
        """The arithmetic of the variant."""
        return RULES[self.variant]


@dataclass(frozen=True)
class ScaffoldServer(FedAvgServer):
    """Trees: `model` (w) and `control` (c)."""

    config: ScaffoldConfig

    def start(self, job: ServerContext) -> State:
        """The initial model; c = 0."""
        model = job.initial_model()
        return State({"model": model, "control": zero_like(model)})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w and c."""
        if exchange.phase.step == SIZES:
            return {silo: Assignment() for silo in silos}
        trees = {"model": "model", "control": "control"}
        settings: dict[str, dict[str, Scalar]] = {silo: {} for silo in silos}
        if self.config.rule.by_size:
            settings = {silo: {"share": share(job, state, silo)} for silo in silos}
        return {silo: Assignment(trees, settings[silo]) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Step w and c."""
        if exchange.phase.step == SIZES:
            return state.with_values(samples={silo: updates.samples(silo) for silo in updates.silos})
        return fold(job, state, exchange, updates, self.config.rule, self.config.server_learning_rate)


class Scaffold(FedAvg):
    """Declaration of SCAFFOLD."""

    name = "scaffold"
    title = "Stochastic controlled averaging"
    citation = (
        "S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic Controlled "
        "Averaging for Federated Learning. ICML 2020."
    )
    at_aggregator = "the model and the control variate c"
    in_silo = "its control variate c_k"
    Config = ScaffoldConfig
    weights = "uniform"

    def averaging(self, config: ScaffoldConfig) -> str:
        """By samples in NIID-Bench's code, uniform in the others."""
        return "samples" if config.variant == "niid-bench" else self.weights

    def steps(self, config: ScaffoldConfig) -> Mapping[str, Step]:
        """The model and the number of local steps, from which the variate's change follows."""
        train = Step((Payload("model"),), ("loss", "steps"))
        return {SIZES: Step(), "train": train} if config.rule.by_size else {"train": train}

    def phases(self, spec: FederatedJobSpec, config: ScaffoldConfig) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds; where silos count by size, they state it first."""
        sizes = (Phase(SIZES, 1, SIZES, everyone=True),) if config.rule.by_size else ()
        return (*sizes, *super().phases(spec, config))

    def server(self, config: ScaffoldConfig) -> ScaffoldServer:
        """Model and control variate."""
        return ScaffoldServer(config)

    def silo(self, config: ScaffoldConfig) -> Mapping[str, SiloStep]:
        """Corrected local steps, and the new c_k."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return train_controlled(silo, task, private, config.rule)

        def sizes(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return Reply(samples=len(silo.train))

        return {"train": train, SIZES: sizes}


METHOD = Scaffold()
