"""DANN at the aggregator: model and discriminator are averaged, and each silo is told its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from fedsilo.methods.components.classifiers import initial_tensors
from fedsilo.methods.dann.config import DISCRIMINATOR, NUMBER, SILOS, DANNConfig
from fedsilo.methods.dann.discriminator import discriminator
from fedsilo.methods.fedavg import OneModelServer
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State


@dataclass(frozen=True)
class DANNServer(OneModelServer):
    """DANN's server half, which averages the model and the discriminator. Trees: `model` and `discriminator`."""

    config: DANNConfig

    @override
    def start(self, job: ServerContext) -> State:
        """One initial model and discriminator for all."""
        width, hidden, silos = job.signature.feature, self.config.hidden, len(job.silos)
        layers = initial_tensors(lambda: discriminator(width, hidden, silos), job.seed("discriminator"))
        tree = {DISCRIMINATOR + name: array for name, array in layers.items()}
        return super().start(job).with_trees(discriminator=tree)

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the model and the discriminator, and to each silo its place in the job's order."""
        trees = {name: name for name in ("model", "discriminator")}
        return {
            silo: Assignment(trees, {NUMBER: job.silos.index(silo), SILOS: len(job.silos)}) for silo in silos
        }

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """Average the model and the discriminator over the silos."""
        mean = sums.mean("model")
        return state.with_trees(
            **{tree: {name: mean[name] for name in state.tree(tree)} for tree in ("model", "discriminator")}
        )
