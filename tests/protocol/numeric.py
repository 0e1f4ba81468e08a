"""Methods with a trivial silo half: what each computes names where it came from, so that a wrong history shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

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

KIND = "averaged_gradients"


class Chain(Method):
    """Each silo sends a link from its private state to the next one: the token before and the token after."""

    name, title, citation = "chain", "Chain", ""
    keeps = StateTraits("each silo's last link", "its last token")
    Config = MethodConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        return {"link": Step((Payload(KIND, "link", (2,), "int64"),), (Metric("answers"),))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("link", self.spec.training.rounds, "link"),)

    @override
    def server(self) -> ChainServer:
        return ChainServer()

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        raise NotImplementedError("the model answers in its place")


class Phases(Chain):
    """A chain in two phases, of which the second has tasks of its own."""

    name, title = "phases", "Phases"

    @override
    def steps(self) -> Mapping[str, Step]:
        return {
            **super().steps(),
            "last": Step((Payload(KIND, "link", (2,), "int64"),), (Metric("answers"),)),
        }

    @override
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases(), Phase("last", 1, "last", everyone=True))


class ChainServer:
    """Keeps each silo's last link, and the sum of all."""

    def start(self, job: ServerContext) -> State:
        links: dict[str, Tree] = {silo: {"link": np.zeros(2, np.int64)} for silo in job.silos}
        return State(
            {"model": job.initial_model(), "sum": {"sum": np.zeros(2, np.int64)}, **links}, {"phases": []}
        )

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        return {silo: Assignment({"own": silo}, {"greeting": f"dear {silo}"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        links = {silo: updates.tensors(silo, KIND) for silo in updates.silos}
        total = state.tree("sum")["sum"] + sum(tree["link"] for tree in links.values())
        state = state.with_values(phases=[*state.values["phases"], exchange.phase.name])
        return state.with_trees(sum={"sum": total}, **links)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        links = {silo: state.tree(silo)["link"] for silo in job.silos}
        return Snapshot(state.tree("model") | links | state.tree("sum"))


class Runner:
    """The task runner of a silo: numbers instead of training.

    :param silo: its reference.
    :param restless: no two of its answers are the same, as on a device that does not sum in a fixed order.
    """

    attempts = 0

    def __init__(self, method: Method, silo: str, restless: bool) -> None:
        self.method = method
        self._silo = silo
        self._restless = restless

    def run(self, task: SiloTask, private: State) -> Reply:
        """Answer a task with numbers that name where they came from."""
        Runner.attempts += 1
        attempt = Runner.attempts if self._restless else 0
        seed = _token(self._silo, task.phase, task.step, task.round, attempt)
        if task.step == "evaluate":
            return Reply(samples=3, metrics={"accuracy": (seed % 100) / 100, "loss": 1.0})
        if "model" in task.trees:
            change = np.float32((seed % 1000) / 100)
            return Reply(
                {name: value + change for name, value in task.trees["model"].items()}, 2 + seed % 3, {}
            )
        before, answers = private.values.get("token", 0), private.values.get("answers", 0) + 1
        held = int(private.tree("held")["token"][0]) if private.trees else 0
        if held != before:
            raise AssertionError(f"private state mixes tokens {held} and {before}")
        after = _token(before, seed)
        kept = State({"held": {"token": np.array([after])}}, {"token": after, "answers": answers})
        return Reply({"link": np.array([before, after])}, 1, {"answers": float(answers)}, private=kept)


def _token(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:5], "big")
