"""The coordinate-wise median of the silos' models, which a minority of bad models cannot move far.

Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
Algorithm 1, option I; here over models instead of gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    MethodConfig,
    Phase,
    Reply,
    ServerContext,
    SiloContext,
    SiloStep,
    SiloTask,
    Snapshot,
)
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State
from fedsilo.methods.step import Metric, Payload, Step
from fedsilo.methods.traits import StateTraits


class MedianConfig(MethodConfig):
    """Settings of the method."""

    keep: float = Field(default=0.0, ge=0, lt=1, description="Part of the old model that each round keeps.")


@dataclass(frozen=True)
class MedianServer:
    """w <- keep w + (1 - keep) median over k of w_k."""

    config: MedianConfig

    def start(self, job: ServerContext) -> State:
        """State with the job's initial model."""
        return State({"model": job.initial_model()})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the model w to every silo."""
        del job, state, exchange
        return {silo: Assignment(trees={"model": "model"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Replace each coordinate by the silos' median."""
        del exchange
        models = [updates.tensors(silo, "model") for silo in updates.silos]
        keep, old = self.config.keep, state.tree("model")
        new = {
            name: (keep * value + (1 - keep) * np.median([model[name] for model in models], axis=0)).astype(
                value.dtype
            )
            for name, value in old.items()
        }
        return state.with_trees(model=new)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """The coordinate-wise median as the job's model."""
        return Snapshot(state.tree("model"))


def train_and_count(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """Train the model locally; the private state remembers how often this silo has taken part."""
    reply = train_model(silo, task, private)
    rounds = private.values.get("rounds", 0) + 1
    return replace(reply, metrics={"rounds": rounds}, private=private.with_values(rounds=rounds))


class Median(Method):
    """Declaration of the coordinate-wise median."""

    name = "median"
    title = "Coordinate-wise median"
    citation = (
        "D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal "
        "Statistical Rates. ICML 2018."
    )
    keeps = StateTraits(silo="how often the silo has taken part")
    Config = MedianConfig
    config: MedianConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """Whole models, and how often this silo has taken part."""
        return {"train": Step((Payload("model"),), (Metric("rounds"),))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("train", self.spec.training.rounds, "train"),)

    @override
    def server(self) -> MedianServer:
        return MedianServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        return {"train": train_and_count}

    @override
    def check(self) -> list[tuple[str, object, str, str]]:
        """A median of two is their mean."""
        silos = len(self.spec.silos.refs)
        if 0 < silos < 3:
            return [("spec.silos.refs", silos, "has fewer silos than a median needs", "name three or more")]
        return []
