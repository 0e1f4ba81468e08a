"""FedAvg: federated averaging of one model.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
Algorithm 1. The averaging weights are n_k / sum of n_k over the silos that took part in the round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedsilo.methods.building_blocks.local import PlainTraining, train_model
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    MethodConfig,
    Payload,
    Phase,
    ServerContext,
    ServerHalf,
    SiloStep,
    Snapshot,
    Step,
    Updates,
)
from fedsilo.methods.method import MechanismName, Method
from fedsilo.methods.state import State
from fedsilo.tasks.interface import EVERY_TASK
from fedsilo.tasks.registry import kind_of


class FedAvgServer:
    """w <- sum over k of (n_k / n) w_k. Tree: `model`."""

    def start(self, job: ServerContext) -> State:
        """Every silo begins from the same initial weights."""
        return State({"model": job.initial_model()})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w."""
        return {silo: Assignment(trees={"model": "model"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Average the models of the silos that answered."""
        return state.with_trees(model=job.mean(updates, "model"))

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The averaged model itself."""
        return Snapshot(state.tree("model"))


class FedAvg(Method):
    """Declaration of FedAvg."""

    name = "fedavg"
    title = "Federated averaging"
    citation = (
        "B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of "
        "Deep Networks from Decentralized Data. AISTATS 2017."
    )
    at_aggregator = "the model"
    in_silo = "nothing"
    whole_model: ClassVar[str | None] = None
    tasks = EVERY_TASK
    needs_features = False
    Config = MethodConfig

    @property
    def single_updates(self) -> Mapping[str, str]:
        """None: a mean is all that the aggregator needs."""
        return {}

    @property
    def averages_models(self) -> bool:
        """It does, and so does what is made from it by another half in the silos only that sends nothing else."""
        kinds = {payload.kind for step in self.steps().values() for payload in step.payloads}
        return type(self).server is FedAvg.server and kinds == {"model"} and not self.single_updates

    @property
    def mechanisms(self) -> Mapping[str, MechanismName]:
        """Silos train plainly, likewise."""
        return {"model": "DP-SGD"} if self.accepts_trainer else {}

    @property
    def accepts_trainer(self) -> bool:
        """Silos train plainly, unless a method made from this one gives them another half."""
        return type(self).silo is FedAvg.silo

    def steps(self) -> Mapping[str, Step]:
        """Silos send whole models."""
        return {"train": Step((Payload("model"),), ("loss",))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    def server(self) -> ServerHalf:
        """The averaging half."""
        return FedAvgServer()

    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the local loss, starting from w."""
        plain = kind_of(self.spec.task) == "classification" and not self.weighs_classes
        return {"train": PlainTraining() if plain else train_model}
