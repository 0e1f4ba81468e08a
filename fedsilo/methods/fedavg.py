"""FedAvg: federated averaging of one model.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
Algorithm 1. The averaging weights are n_k / sum of n_k over the silos that took part in the round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.manifests.job import FederatedJobSpec
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Method,
    MethodConfig,
    Payload,
    Phase,
    Reply,
    ServerContext,
    SiloContext,
    SiloTask,
    Step,
    Updates,
)
from fedsilo.methods.state import State, Tree


class FedAvgServer:
    """w <- sum over k of (n_k / n) w_k."""

    def start(self, job: ServerContext) -> State:
        """Every silo begins from the same initial weights."""
        return State({"model": job.initial_model()})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast w."""
        del job, state, exchange
        return {silo: Assignment(trees={"model": "model"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Average the models of the silos that answered."""
        del exchange
        return state.with_trees(model=job.mean(updates, "model"))

    def model(self, job: ServerContext, state: State) -> Tree:
        """The averaged model itself."""
        del job
        return state.tree("model")


class FedAvgSilo:
    """w_k <- E epochs of SGD on the local cross-entropy, starting from w."""

    def train(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """Local update; nothing is kept between rounds, the optimiser included."""
        from fedsilo.learning.models import to_tree
        from fedsilo.learning.training import fit

        del private
        model = silo.model(task.trees["model"])
        report = fit(model, silo.train, silo.local_training(task))
        return Reply(to_tree(model), samples=len(silo.train), metrics={"loss": report.loss})


class FedAvg(Method):
    """Declaration of FedAvg."""

    name = "fedavg"
    title = "Federated averaging"
    citation = (
        "B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of "
        "Deep Networks from Decentralized Data. AISTATS 2017."
    )
    Config = MethodConfig
    steps = {"train": Step(payloads=(Payload("model"),), metrics=("loss",))}  # noqa: RUF012

    def phases(self, spec: FederatedJobSpec, config: Any) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        del config
        return (Phase("train", spec.training.rounds, "train"),)

    def server(self) -> FedAvgServer:
        """The averaging half."""
        return FedAvgServer()

    def silo(self) -> FedAvgSilo:
        """The training half."""
        return FedAvgSilo()


METHOD = FedAvg()
