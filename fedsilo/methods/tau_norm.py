"""tau-norm divides each class's weights by a power of their norm, after another method.

Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020, Section 4.1, eq. 4:
frequent classes come out of training with larger weights, which the division takes back. Silos take no part in it.

Each class's weights are divided by their norm to the power `tau`, the bias is zero, and nothing is trained. With
`training.rounds: 0` and `model.initialWeights` (docs/parameters.md#initial-weights) it treats an existing model in
one round; the result is byte for byte that of a job which trained the model itself. Every evaluated model is
normalised, and a job may end early by its score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.class_weights import normalised_rows
from fedsilo.methods.components.post_training import AfterConfig, PostTraining
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Phase,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
    Snapshot,
)
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State
from fedsilo.methods.step import Step
from fedsilo.methods.traits import StateTraits

Read = TypeVar("Read", bound=Mean)

COUNT = "count"
"""Step of a job that trains nothing, in which a silo sends nothing but the number of its examples."""


class TauNormConfig(AfterConfig):
    """The power, and the method before."""

    tau: float = Field(
        default=1.0,
        ge=0,
        le=2,
        description="Power tau of the norm; 0 takes off the bias alone [paper, eq. 4; released code: 0 to 2, chosen on "
        "validation examples].",
    )


@dataclass(frozen=True)
class TauNormServer(Generic[Read]):
    """Server half of the method before, whose model is normalised whenever it is looked at; nothing else is kept."""

    base: ServerHalf[Read]
    tau: float

    def start(self, job: ServerContext) -> State:
        """State with which the method before starts."""
        return self.base.start(job)

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """What the method before gives each silo; nothing where there is no such method."""
        if exchange.phase.step == COUNT:
            return dict.fromkeys(silos, Assignment())
        return self.base.assign(job, state, exchange, silos)

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, read: Read) -> State:
        """State of the method before after the round; unchanged where there is no such method."""
        if exchange.phase.step == COUNT:
            return state
        return self.base.aggregate(job, state, exchange, read)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """W_c / ||W_c||^tau for each class c; the bias is zero, as in the released code's evaluation."""
        found = self.base.model(job, state)
        tree = {**found.tree, "classifier.weight": normalised_rows(found.tree["classifier.weight"], self.tau)}
        if "classifier.bias" in tree:
            tree["classifier.bias"] = np.zeros_like(tree["classifier.bias"])
        return Snapshot(tree, found.settings)


class TauNorm(PostTraining):
    """Declaration of tau-norm, which normalises the classifier after another method."""

    name = "tau-norm"
    title = "Class weights divided by a power of their norm, after another method"
    citation = (
        "B. Kang, S. Xie, M. Rohrbach, Z. Yan, A. Gordo, J. Feng, Y. Kalantidis. Decoupling Representation and "
        "Classifier for Long-Tailed Recognition. ICLR 2020."
    )
    keeps = StateTraits("what the method before keeps", "what the method before keeps")
    Config = TauNormConfig
    config: TauNormConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        return super().steps() or {COUNT: Step()}

    @override
    def phases(self) -> tuple[Phase, ...]:
        return super().phases() or (Phase("calibration", 1, COUNT, everyone=True),)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """The steps of the method before; a silo that is asked for nothing states its number of examples."""

        def count(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return Reply(samples=silo.train.records)

        return super().silo() or {COUNT: count}

    @override
    def server(self) -> ServerHalf[Any]:
        """The method before, then the normalisation."""
        return TauNormServer(self.base.server(), self.config.tau)
