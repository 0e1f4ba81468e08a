"""Silos that answer at once with synthetic models, and a method that uses all that the engine offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import FedsiloError
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    MethodConfig,
    Phase,
    Reply,
    ServerContext,
    SiloStep,
    SiloTask,
    Snapshot,
)
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree
from fedsilo.methods.step import Metric, Payload, Step
from fedsilo.methods.traits import StateTraits
from tests.federate import references


class Failing(FedsiloError):
    """A silo that cannot answer now, for a reason that another round may not meet."""

    reason = "TrainerError"


class SyntheticRunner:
    """Answers every FedAvg task with the model it was given, changed by what follows from silo and round.

    :param samples: sample count of its updates.
    :param absent: rounds in which it fails.
    """

    def __init__(self, silo: str, samples: int = 1, absent: Sequence[int] = ()) -> None:
        self.silo, self.samples, self.absent = silo, samples, absent
        self.answered: list[str] = []

    def run(self, task: SiloTask, private: State) -> Reply:
        del private
        self.answered.append(f"{task.step} {task.round}")
        if task.round in self.absent:
            raise Failing("out of memory")
        if task.step == "evaluate":
            return Reply(samples=self.samples, metrics={"accuracy": 1 / self.samples, "loss": 2.0})
        random = np.random.default_rng(derive_seed(1, self.silo, task.round))
        tree = {
            name: (value + random.normal(size=value.shape)).astype(value.dtype)
            for name, value in task.trees["model"].items()
        }
        return Reply(tree, self.samples, {"loss": float(task.round)})


def synthetic_runners(
    spec: FederatedJobSpec, absent: Mapping[str, Sequence[int]] | None = None
) -> dict[str, SyntheticRunner]:
    """One for each silo of the job, with uneven sample counts."""
    names = references(spec)
    return {
        silo: SyntheticRunner(silo, samples, (absent or {}).get(silo, ()))
        for samples, silo in enumerate(names, start=1)
    }


class Diary(Method):
    """Each silo counts its own rounds in private state, and gets a tree and a setting of its own."""

    name, title, citation = "diary", "Diary", ""
    keeps = StateTraits("what each silo wrote last", "how often it wrote")
    Config = MethodConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        return {
            "write": Step((Payload("averaged_gradients", "pages", (2,)),), (Metric("rounds"),)),
            "read": Step((Payload("averaged_gradients", "pages", ("classes",)),)),
        }

    @override
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("write", self.spec.training.rounds, "write"), Phase("read", 1, "read", everyone=True))

    @override
    def server(self) -> DiaryServer:
        return DiaryServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        silo = DiarySilo()
        return {"write": silo.write, "read": silo.read}


class DiaryServer:
    """Keeps for each silo what it wrote last."""

    def start(self, job: ServerContext) -> State:
        pages: dict[str, Tree] = {silo: {"pages": np.zeros(2, np.float32)} for silo in job.silos}
        return State({"model": job.initial_model(), **pages}, {"phases": []})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        del job, state, exchange
        return {silo: Assignment({"own": silo}, {"greeting": f"dear {silo}"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        del job
        state = state.with_values(phases=[*state.values["phases"], exchange.phase.name])
        if exchange.phase.step == "read":
            return state
        written = {silo: updates.tensors(silo, "averaged_gradients") for silo in updates.silos}
        return state.with_trees(**written)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        return Snapshot(state.tree("model") | {silo: state.tree(silo)["pages"] for silo in job.silos})


class DiarySilo:
    """Adds one to its private count, and sends it beside what the aggregator believed it to be."""

    def write(self, silo: Any, task: SiloTask, private: State) -> Reply:
        assert task.settings["greeting"] == f"dear {silo.silo}"
        rounds = private.values.get("rounds", 0) + 1
        mine = private.tree("mine")["rounds"][0] + 1 if private.trees else 1
        assert mine == rounds
        pages = np.array([rounds, task.trees["own"]["pages"][0]], np.float32)
        kept = State({"mine": {"rounds": np.array([mine])}}, {"rounds": rounds})
        return Reply({"pages": pages}, 1, {"rounds": rounds}, private=kept)

    def read(self, silo: Any, task: SiloTask, private: State) -> Reply:
        del silo, task
        return Reply({"pages": np.full(4, private.values["rounds"], np.float32)}, 1)
