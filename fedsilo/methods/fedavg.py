"""FedAvg is federated averaging of one model.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
Algorithm 1. The averaging weights are n_k / sum of n_k over the silos that took part in the round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from fedsilo.methods.components.local import PlainTraining, train_model
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    MethodConfig,
    Phase,
    ServerContext,
    ServerHalf,
    SiloStep,
    Snapshot,
)
from fedsilo.methods.method import Method
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.methods.traits import PLAIN_TRAITS, UNRESTRICTED_TASKS, StateTraits, TrainingTraits
from fedsilo.tasks.registry import kind_of, weighs_classes


class OneModelServer:
    """The beginning of server halves that have one model, which all silos are given. Tree: `model`."""

    def start(self, job: ServerContext) -> State:
        """Every silo begins from the same initial weights."""
        return State({"model": job.initial_model()})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the model w to every silo of the round."""
        return {silo: Assignment(trees={"model": "model"}) for silo in silos}

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The one model that all silos are given."""
        return Snapshot(state.tree("model"))


class FedAvgServer(OneModelServer):
    """w <- sum over k of (n_k / n) w_k. Tree: `model`."""

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, mean: Mean) -> State:
        """Average the models of the silos that answered."""
        return state.with_trees(model=mean.mean("model"))


class OneModel(Method):
    """The beginning of declarations in which silos train one model and send it, as in FedAvg."""

    keeps = StateTraits()
    Config = MethodConfig

    @property
    @override
    def models(self) -> JobModels:
        """One for all silos, which need not send all of it."""
        return JobModels(SharedModel(whole=None))

    @property
    @override
    def training(self) -> TrainingTraits:
        """Silos train plainly, unless a method made from this one gives them another half."""
        return PLAIN_TRAITS if type(self).silo is OneModel.silo else TrainingTraits()

    @override
    def steps(self) -> Mapping[str, Step]:
        """Silos send whole models."""
        return {"train": Step((Payload("model"),), (LOSS,))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the local loss, starting from w."""
        plain = kind_of(self.spec.task) == "classification" and not weighs_classes(self.spec.task)
        return {"train": PlainTraining() if plain else train_model}


class FedAvg(OneModel):
    """Declaration of FedAvg, the average of the silos' models."""

    name = "fedavg"
    title = "Federated averaging"
    use_when = "a job is the first about its data, with which all others are compared"
    citation = (
        "B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of "
        "Deep Networks from Decentralized Data. AISTATS 2017."
    )
    tasks = UNRESTRICTED_TASKS

    @override
    def server(self) -> ServerHalf[Mean]:
        return FedAvgServer()
