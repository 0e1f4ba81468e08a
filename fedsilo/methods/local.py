"""Local training is every silo training alone, as long as it would in federated averaging.

A federation is to be better than that.

As in Smith, Chiang, Sanjabi, Talwalkar, "Federated Multi-Task Learning", NeurIPS 2017, Section 5, and many others.
Nothing is common but the initial weights, the schedule and the rounds. Silos send no tensor: their samples, training
losses and the accuracies of their models are what is known of them.

`model.safetensors` has nothing; silos always score their own models (docs/methods.md#personal-models), and a
`testDataset` scores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from fedsilo.api.job import ModelSpec
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.own_models import own_model
from fedsilo.methods.interface import (
    PERSONAL_TREE,
    Assignment,
    Exchange,
    MethodConfig,
    Phase,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
    Snapshot,
)
from fedsilo.methods.method import Method
from fedsilo.methods.models import JobModels, OwnModel, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State
from fedsilo.methods.step import LOSS, Step
from fedsilo.methods.traits import StateTraits, TaskTraits, TrainingTraits


class LocalServer:
    """Keeps nothing, and yields no tensor."""

    def start(self, job: ServerContext) -> State:
        """An empty state, since silos train alone."""
        return State()

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Silos are given nothing."""
        return {silo: Assignment() for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The state as it was, since nothing comes of a round but what its record says."""
        return state

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """A snapshot without tensors, since there is no model for all silos."""
        return Snapshot({})


class LocalOnly(Method):
    """Declaration of local training."""

    name = "local"
    title = "Each silo by itself"
    citation = (
        "V. Smith, C.-K. Chiang, M. Sanjabi, A. Talwalkar. Federated Multi-Task Learning. NeurIPS 2017."
    )
    keeps = StateTraits("nothing", "its own model")
    tasks = TaskTraits(reason="silos' own models are scored by accuracy")
    Config = MethodConfig
    models = JobModels(
        SharedModel(is_model=False, whole="nothing is shared", architecture=ModelSpec(name="local")),
        OwnModel(),
        silos_need_initial=True,
    )
    training = TrainingTraits(accepts_trainer=True)

    @override
    def steps(self) -> Mapping[str, Step]:
        """Silos send figures only."""
        return {"train": Step(metrics=(LOSS,))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds, as in FedAvg."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    @override
    def server(self) -> ServerHalf[Sums]:
        return LocalServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """v_k <- E epochs of SGD on the local loss, from where the silo's last round ended."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            alone = replace(task, trees={"model": own_model(silo, private)})
            reply = train_model(silo, alone, private)
            kept = private if reply.private is None else reply.private
            return replace(reply, tensors={}, private=kept.with_trees(**{PERSONAL_TREE: reply.tensors}))

        return {"train": train}
