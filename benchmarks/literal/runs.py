"""A literal loop over all rounds of a job, beside the job itself or alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.literal.fedbr import FedBR, FedBRState, projection
from benchmarks.literal.federation import Federation, vector
from benchmarks.literal.scaffold import Scaffold, ScaffoldState
from benchmarks.tables.cells import Cell
from fedsilo.learning.models import to_tree
from fedsilo.learning.saved import open_model
from fedsilo.simulation.backend import Backend, Outcome
from fedsilo.simulation.silos import SimulatedTask
from fedsilo.simulation.simulate import open_simulation

THETA = "projection."
"""Begins the names of the projection's tensors in a job."""


class LoopState(Protocol):
    """What a loop has before a round."""

    @property
    def model(self) -> Tensor:
        """The common model w."""

    @property
    def measures(self) -> dict[str, float]:
        """What is told of a round beside its accuracy."""


S = TypeVar("S", bound=LoopState)


class Loop(Protocol[S]):
    """A method's pseudo-code, run round by round."""

    def start(self, of: Federation) -> S:
        """State of the method before round 1."""

    def round(self, of: Federation, state: S, number: int) -> S:
        """State of the method after a round; `number` counts from 1."""


@dataclass(frozen=True)
class Course:
    """How a run went.

    :param rounds: those that were scored.
    :param accuracies: after each of them.
    :param measures: of each of them, by name.
    :param lost: the round in which the model stopped being finite; None if it did not.
    """

    rounds: list[int]
    accuracies: list[float]
    measures: dict[str, list[float]]
    lost: int | None
    seconds: float


def run(loop: Loop[S], of: Federation) -> Course:
    """All rounds of the job, or as many as there are before the model is lost."""
    began, state, lost = time.perf_counter(), loop.start(of), None
    rounds, accuracies, measures = list[int](), list[float](), dict[str, list[float]]()
    for number in range(1, of.rounds + 1):
        state = loop.round(of, state, number)
        if not bool(state.model.isfinite().all()):
            lost = number
            break
        if of.is_scored(number):
            rounds.append(number)
            accuracies.append(round(of.accuracy(state.model), 5))
            for name, value in state.measures.items():
                measures.setdefault(name, []).append(float(f"{value:.4g}"))
    return Course(rounds, accuracies, measures, lost, round(time.perf_counter() - began, 1))


class WatchedBackend:
    """A simulation's backend that keeps what the training tasks hand out, and what silos have then.

    :ivar given: for each round its tasks, without those that score models.
    """

    def __init__(self, backend: Backend) -> None:
        self.given: list[Sequence[SimulatedTask]] = []
        self._backend = backend

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcome of each task."""
        if tasks[0].task.step == "train":
            self.given.append(tasks)
        yield from self._backend.run(tasks)

    def close(self) -> None:
        """Release the backend that computes."""
        self._backend.close()


@dataclass(frozen=True)
class Job:
    """What a job was like before each round, and after the last one.

    :param given: the tasks of each round.
    :param final: the last round's model.
    :param accuracies: of the rounds that were scored.
    """

    given: list[Sequence[SimulatedTask]]
    final: Mapping[str, np.ndarray]
    accuracies: list[float]

    @classmethod
    def of(cls, cell: Cell, folder: Path) -> Job:
        """Run a cell's job by the simulation.

        :raises FedsiloError: the job's failure.
        """
        manifest = cell.manifest(folder, "cpu")
        with (
            tempfile.TemporaryDirectory(prefix="fedsilo-") as directory,
            closing(open_simulation(manifest, Path.cwd(), Path(directory))) as simulation,
        ):
            simulation.backend = watched = WatchedBackend(simulation.backend)
            for _ in simulation.run():
                pass
            if simulation.failure is not None:
                raise simulation.failure
            assert simulation.result is not None
            final = to_tree(open_model(simulation.result.path))
            lines = [line["metrics"] for line in simulation.history()]
            scored = [round(metrics["accuracy"], 5) for metrics in lines if "accuracy" in metrics]
            return cls(watched.given, final, scored)

    def models(self, of: Federation) -> list[Tensor]:
        """w after each round."""
        later = [tasks[0].task.trees["model"] for tasks in self.given[1:]]
        return [vector(tree, of.network) for tree in [*later, self.final]]

    def state(self, loop: Loop[Any], of: Federation, number: int) -> Any:
        """What a literal loop needs to know of the job before a round, from 1."""
        tasks = self.given[number - 1]
        trees = tasks[0].task.trees
        w = vector(trees["model"], of.network)
        if isinstance(loop, FedBR):
            theta = {name.removeprefix(THETA): array for name, array in trees["projection"].items()}
            return FedBRState(w, vector(theta, projection(of.network.feature).to(of.dtype)))
        own = dict.fromkeys(of.silos, torch.zeros_like(w))
        for task in tasks:
            if "control" in task.private.trees:
                own[task.silo] = vector(task.private.tree("control"), of.network)
        return ScaffoldState(w, vector(trees["control"], of.network), own)


@dataclass(frozen=True)
class Comparison:
    """A literal loop beside its job, round by round.

    :param job: the job's accuracies.
    :param free: precision -> accuracies of the loop, which goes on from its own state.
    :param apart: precision -> largest difference between a weight of the loop and of the job after each round.
    :param anew: the same where the loop begins every round with the job's state, in float32.
    """

    job: list[float]
    free: dict[str, list[float]]
    apart: dict[str, list[float]]
    anew: list[float]


def compare(loop: Loop[Any], cell: Cell, folder: Path, every: int = 1) -> Comparison:
    """Run the job, and the loop in both precisions.

    :param every: begin anew in each n-th round only, since that takes as long as the loop itself.
    """
    job, manifest = Job.of(cell, folder), cell.manifest(folder, "cpu")
    free, apart, anew = dict[str, list[float]](), dict[str, list[float]](), list[float]()
    for dtype in (torch.float32, torch.float64):
        name, of = str(dtype).removeprefix("torch."), Federation.of(manifest, dtype)
        after = job.models(of)
        free[name], apart[name] = [], []
        state = job.state(loop, of, 1)
        for number, theirs in enumerate(after, start=1):
            state = loop.round(of, state, number)
            apart[name].append(_difference(state.model, theirs))
            if of.is_scored(number):
                free[name].append(round(of.accuracy(state.model), 5))
            if dtype == torch.float32 and number % every == 0:
                again = loop.round(of, job.state(loop, of, number), number)
                anew.append(_difference(again.model, theirs))
    return Comparison(job.accuracies, free, apart, anew)


def loop_of(question: str, changed: Mapping[str, Any]) -> Loop[Any]:
    """The loop of a question with what a variant changes in it.

    :raises KeyError: no such question.
    """
    base: dict[str, Scaffold | FedBR] = {
        "scaffold": Scaffold(),
        "scamap": Scaffold(server_rate=0.9, alpha=0.9, part=0.5),
        "fedbr": FedBR(),
    }
    return replace(base[question], **changed)


def _difference(one: Tensor, other: Tensor) -> float:
    return float(f"{float((one - other).abs().max()):.3g}")
