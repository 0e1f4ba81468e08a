"""GroupDRO is distributionally robust averaging, in which silos with a larger loss weigh more.

Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020, Algorithm 1, with
silos as groups: a group's weight grows by e^(eta loss) before each step, here by the loss of a silo's first local step,
and the silos' models are averaged by these weights, as in FedBR's released code. That always mixes examples too.

A silo that reports large losses counts more, but reports at most 103.3, -ln of float32's smallest number: in a
round no weight grows by more than e^(103.3 `eta`) times that of another. `aggregation.weights: samples` is
refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.mixing import MixupConfig, mixup_loss
from fedsilo.methods.fedavg import OneModel, OneModelServer
from fedsilo.methods.interface import (
    Exchange,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
)
from fedsilo.methods.method import averaging_of
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State
from fedsilo.methods.step import LOSS, Metric, Payload, Step
from fedsilo.methods.traits import AveragingTraits, StateTraits, TaskTraits, TrainingTraits

FIRST_LOSS = "first_loss"
"""The metric of the loss of a silo's first local step, before the model moved."""

LARGEST_LOSS = 149 * math.log(2)
"""Most that a silo reports, 103.3: -ln of float32's smallest number. A class that a model holds for less likely than
that has no probability any more, and without a limit one silo could take all of the weight in a single round."""

LOG_WEIGHTS = "log_weights"
"""Value of the server's state: silo -> log p_k, whose exponential might have no number."""


class GroupDROConfig(MixupConfig):
    """Settings of GroupDRO in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: silos train on their examples. released: on mixtures of them by alpha, as in "
        "mixup [paper, Algorithm 1; FedBR's released code].",
    )
    eta: float = Field(
        default=0.01,
        ge=0,
        le=100,
        description="Step of the weights; 0 is a uniform mean [FedBR's released code].",
    )


@dataclass(frozen=True)
class GroupDROServer(OneModelServer):
    """p_k <- p_k e^(eta l_k), w <- sum of p_k w_k over sum of p_k. Tree: `model`."""

    eta: float

    @override
    def start(self, job: ServerContext) -> State:
        """All silos weigh 1."""
        return super().start(job).with_values(**{LOG_WEIGHTS: {}})

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Weigh the silos that answered by their losses so far; the others keep their weights."""
        logs: dict[str, float] = dict(state.values[LOG_WEIGHTS])
        for silo in updates.silos:
            logs[silo] = logs.get(silo, 0.0) + self.eta * updates.metrics(silo)[FIRST_LOSS]
        largest = max(logs[silo] for silo in updates.silos)
        weights = {silo: math.exp(logs[silo] - largest) for silo in updates.silos}
        total = sum(weights.values())
        mean = updates.weighted_sum("model", {silo: p / total for silo, p in weights.items()})
        return state.with_trees(model=mean).with_values(**{LOG_WEIGHTS: logs})


class GroupDRO(OneModel):
    """Declaration of GroupDRO, whose silos also send the loss of their first local step."""

    name = "groupdro"
    title = "Distributionally robust averaging"
    citation = (
        "S. Sagawa, P. W. Koh, T. B. Hashimoto, P. Liang. Distributionally Robust Neural Networks for Group Shifts. "
        "ICLR 2020."
    )
    keeps = StateTraits("the model and each silo's weight")
    tasks = TaskTraits(needs_features=False)
    Config = GroupDROConfig
    averaging = AveragingTraits("uniform")
    config: GroupDROConfig

    @property
    @override
    def training(self) -> TrainingTraits:
        """The first loss is of one batch, and of a whole one where examples are mixed with others of theirs."""
        return TrainingTraits(data_parallel=self.config.variant == "paper", sends_after="one batch")

    @override
    def check(self) -> list[tuple[str, object, str, str]]:
        """That the job weighs silos by nothing but their losses."""
        if averaging_of(self) == "uniform":
            return []
        problem = f"has no meaning in {self.name}, whose means weigh silos by their losses"
        return [("spec.aggregation.weights", averaging_of(self), problem, "remove it, or write uniform")]

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model and one loss more."""
        first = Metric(FIRST_LOSS, (0.0, LARGEST_LOSS), required=True)
        return {"train": Step((Payload("model"),), (LOSS, first))}

    @override
    def server(self) -> ServerHalf[Updates]:
        """Averaging by weights that follow the losses."""
        return GroupDROServer(self.config.eta)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the loss, and what it was at the given model."""
        return {"train": self._train}

    def _train(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        from fedsilo.learning.models import to_tree
        from fedsilo.learning.training import fit

        mixed = self.config.variant == "released"
        loss = mixup_loss(silo, task, self.config.alpha) if mixed else silo.loss()
        model = silo.module(task.trees["model"])
        report = fit(model, silo.train, silo.local_training(task), loss=loss)
        metrics = {"loss": report.loss, FIRST_LOSS: min(report.first_loss, LARGEST_LOSS)}
        return Reply(to_tree(model), samples=len(silo.train), metrics=metrics)
