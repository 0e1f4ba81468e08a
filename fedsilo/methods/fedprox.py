"""FedProx is federated averaging with a proximal term in the silos' loss.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2: a silo minimises
F_k(w_k) + (mu / 2) ||w_k - w||^2, where w is the model that it was given. It need not do all of the round's work: of
the silos of a round a part, the stragglers, does a random number of epochs, and all are averaged alike.

A straggler does fewer epochs whatever `minSteps` is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.partial_work import WORK, full_work, partial_work, stragglers
from fedsilo.methods.components.proximal import proximal_loss
from fedsilo.methods.fedavg import FedAvg, FedAvgServer
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    MethodConfig,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
)
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import Scalar, State
from fedsilo.methods.traits import UNRESTRICTED_TASKS, AveragingTraits, TrainingTraits


class FedProxConfig(MethodConfig):
    """Settings of FedProx in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: (mu / 2) ||w_k - w||^2. released: mu times the mean Huber distance of the tensors, which "
        "is far weaker; uniform means [paper, eq. 2; MAP's released code].",
    )
    mu: float = Field(
        default=0.01, ge=0, description="Weight of the term; 0 is FedAvg [paper: 0.001, 0.01, 0.1, 1]."
    )
    stragglers: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Part of a round's silos, to the nearest number and a half rounded up, that do 1 to localEpochs "
        "epochs whatever minSteps is, or 1 to localSteps steps, at random [paper, Section 5.2: 0, 0.5, 0.9].",
    )


@dataclass(frozen=True)
class FedProxServer(FedAvgServer):
    """Averaging that tells stragglers how much they do. Tree: `model`."""

    config: FedProxConfig

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w, and to the stragglers how much they do."""
        drawn = stragglers(job.spec, exchange, job.silos, self.config.stragglers)
        return {
            silo: replace(given, settings={WORK: drawn[silo]}) if silo in drawn else given
            for silo, given in super().assign(job, state, exchange, silos).items()
        }


class FedProx(FedAvg):
    """Declaration of FedProx, with a proximal term in the silos' loss, and stragglers among them."""

    name = "fedprox"
    title = "Federated averaging with a proximal term"
    use_when = "silos drift apart, or some of them do only a part of a round's work"
    citation = (
        "T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith. Federated Optimization in Heterogeneous "
        "Networks. MLSys 2020."
    )
    tasks = UNRESTRICTED_TASKS
    Config = FedProxConfig
    averaging = AveragingTraits(uniform_variants=("released",))
    config: FedProxConfig

    @property
    @override
    def training(self) -> TrainingTraits:
        """A straggler may do one step."""
        return TrainingTraits(sends_after="one step" if self.config.stragglers else "all steps")

    @override
    def check(self) -> list[Finding]:
        """Stragglers of a round that is of one piece."""
        part = self.config.stragglers
        if not part or full_work(self.spec.training) > 1:
            return []
        problem = "has no meaning with one local epoch, the least that a straggler does"
        remedy = "set spec.training.localEpochs or localSteps above 1, or remove it"
        return [("spec.method.config.stragglers", part, problem, remedy)]

    @override
    def silo_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        """How much a straggler does."""
        refs = [str(ref) for ref in self.spec.silos.refs]
        drawn = stragglers(self.spec, exchange, refs, self.config.stragglers)
        return {WORK: drawn[silo]} if exchange.phase.step == "train" and silo in drawn else {}

    @override
    def server(self) -> ServerHalf[Mean]:
        return FedProxServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy and the proximal term; of a straggler fewer."""
        distance: Literal["squared", "huber"] = "squared" if self.config.variant == "paper" else "huber"

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            loss = proximal_loss(silo, task.trees["model"], self.config.mu, distance=distance)
            plan = partial_work(silo, task, self.config.stragglers)
            return train_model(silo, task, private, loss=loss, plan=plan)

        return {"train": train}
