"""Jobs over the reference numbers: the released codes' network as a job's own factory, their data as silos.

A test names a fixture and what of the manifest differs; everything else is the code that every job runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.context import JobContext
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import FedsiloError
from fedsilo.learning.models import Model
from fedsilo.learning.training import Loss
from fedsilo.methods.interface import Exchange, Phase, Reply, ServerContext, SiloContext, SiloTask
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree
from fedsilo.methods.step import Payload
from fedsilo.silo.runner import TaskRunner
from fedsilo.simulation.silos import SimulatedUpdate
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import (
    LocalSilo,
    Runner,
    job_spec,
    local_silos,
    open_engine,
    references,
    runners,
    silo_holding,
    silo_of_file,
)
from tests.reference_numbers import Numbers
from tests.reference_numbers.networks import harness_model

CLIENTS = 4

COMPARED_ROUNDS = (1, pytest.param(3, marks=pytest.mark.thorough))
"""Rounds after which a run is compared with a recorded one: the third goes on from the second, and so tells of it."""

MODEL = (Payload("model"),)
"""What silos send in most steps."""


def network(input_shape: tuple[int, ...], classes: int, fixture: str) -> Model:
    """The fixture's network with its initial weights, as `spec.model.name` may name it."""
    del input_shape, classes
    return harness_model(reference_numbers.load(fixture))


def identity(input_shape: tuple[int, ...], classes: int) -> Model:
    """A network whose features are its inputs, for fixtures that record features."""
    return Model(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), classes))


IDENTITY = f"python:{__name__}:identity"
"""Its name in `spec.model.name`."""


class Point(nn.Module):
    """Three numbers that learn, for fixtures that record an optimiser's steps; its outputs are zeros."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))
        self.classes = classes

    @override
    def forward(self, features: Tensor) -> Tensor:
        return features.new_zeros(len(features), self.classes)


POINT = f"python:{__name__}:Point"
"""Name by which a job finds the network."""

ROUND = Exchange(Phase("train", 1, "train"), 1, 1, 1)
"""The only round of a job of one."""


def server_context(spec: FederatedJobSpec, signature: ModelSignature) -> ServerContext:
    """What the engine hands to the server half of the job."""
    return JobContext(spec, signature, references(spec))


def answers(
    sent: Mapping[str, Mapping[str, Tree]],
    samples: Mapping[str, int] | None = None,
    rule: str = "samples",
    payloads: Sequence[Payload] = MODEL,
    **metrics: float,
) -> Updates:
    """Updates as the server half reads them, summed as in every job.

    :param sent: silo -> payload kind -> tensors.
    :param samples: of each silo; 1 by default.
    :param rule: of averaging.
    :param payloads: of the step.
    """
    return Updates(accepted_updates(sent, samples, **metrics), rule, payloads)


def accepted_updates(
    sent: Mapping[str, Mapping[str, Tree]], samples: Mapping[str, int] | None = None, **metrics: float
) -> InMemoryUpdates:
    """Accepted updates as the engine has them."""
    return InMemoryUpdates(
        {
            silo: SimulatedUpdate(samples[silo] if samples else 1, metrics, blocks, None)
            for silo, blocks in sent.items()
        }
    )


class ObservedSilo:
    """A silo whose tasks and replies are noted.

    :ivar seen: step and round of the phase -> task and reply.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.seen: dict[tuple[str, int], tuple[SiloTask, Reply]] = {}

    def run(self, task: SiloTask, private: State) -> Reply:
        reply = self.runner.run(task, private)
        trees = {
            name: {key: np.array(array) for key, array in tree.items()} for name, tree in task.trees.items()
        }
        self.seen[task.step, task.phase_round] = replace(task, trees=trees), reply
        return reply


def fixture_spec(method: str, fixture: str, rounds: int, /, **sections: Any) -> FederatedJobSpec:
    """A job whose silos `c0` to `c3` are the fixture's clients."""
    clients = [f"c{k}" for k in range(CLIENTS)]
    model = {"name": f"python:{__name__}:network", "config": {"fixture": fixture}}
    return job_spec(method, clients, rounds, model=model, **sections)


def fixture_runners(spec: FederatedJobSpec, fixture: str) -> dict[str, TaskRunner]:
    """Task runners of a fixture's silos; batches in the given order, as the released codes were run."""
    path = reference_numbers.path(fixture)
    silos = [silo_of_file(path, f"c{k}", features=f"x{k}", labels=f"y{k}") for k in range(CLIENTS)]
    answering = runners(spec, silos, path.parent)
    for runner in answering.values():
        runner.context = replace(runner.context, shuffle=False)
    return answering


def optimizer(npz: Numbers, lr: str, weight_decay: str, momentum: str | None = None) -> dict[str, Any]:
    """`spec.training.optimizer` from the fixture's own hyper-parameters."""
    return {
        "learningRate": float(npz[lr]),
        "momentum": float(npz[momentum]) if momentum else 0.0,
        "weightDecay": float(npz[weight_decay]),
    }


def bowl(context: SiloContext) -> Loss:
    """A loss of `Point` in place of a silo's own: ||w||^2 / 2, whose gradient is w."""
    return lambda model, features, labels: model.w.square().sum() / 2


def steps_of_point(
    directory: Path,
    method: str,
    steps: int,
    optimizer: Mapping[str, float],
    trees: Mapping[str, Tree],
    config: Mapping[str, Any],
) -> Reply:
    """What a silo answers after so many steps of `Point`; its examples say nothing."""
    spec = job_spec(
        method,
        ["a"],
        method={"config": config},
        model={"name": POINT, "config": {}},
        training={"rounds": 1, "device": "cpu", "localEpochs": steps, "optimizer": optimizer},
    )
    silo = silo_holding(directory, "a", np.zeros((2, 6), np.float32), np.zeros(2, np.int64))
    (runner,) = runners(spec, [silo], directory).values()
    return runner.run(SiloTask("train", "train", 1, 1, 1, trees, {}), State())


def assert_close(found: Tree, expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 2e-5 * np.abs(value).max(), name


def niid_bench(npz: Numbers) -> dict[str, Any]:
    """Mini-batches at a constant rate, weights by samples."""
    training = {
        "localEpochs": int(npz["hp/epochs"]),
        "batchSize": int(npz["hp/batch_size"]),
        "optimizer": optimizer(npz, "hp/lr", "hp/reg", "hp/rho"),
    }
    return {"training": training}


def map_repository(npz: Numbers) -> dict[str, Any]:
    """One full batch an epoch, at least five steps, warm-up over five rounds, uniform weights."""
    training = {
        "localEpochs": int(npz["arg/local_epochs"]),
        "batchSize": int(npz["arg/batch_size"]),
        "optimizer": optimizer(npz, "arg/lr", "arg/weight_decay", "arg/momentum"),
        "gradientClip": float(npz["arg/max_grad_norm"]),
        "minSteps": 5,
        "warmupRounds": 5,
    }
    return {"training": training, "aggregation": {"weights": "uniform"}}


def feddyn_repository(npz: Numbers) -> dict[str, Any]:
    """Full batches of plain SGD, a rate that decays from the first round on."""
    training = {
        "localEpochs": int(npz["hp/epoch"] if "hp/epoch" in npz else npz["hp/n_minibatch"]),
        "batchSize": int(npz["sizes"].max()),
        "optimizer": optimizer(npz, "lr", "weight_decay"),
        "gradientClip": float(npz["clip"]),
        "schedule": "exponential",
        "decay": float(npz["lr_decay"]),
    }
    return {"training": training, "participation": {"minSilos": 1}}


class UnselectedError(FedsiloError):
    """The recorded run did not select this client."""

    reason = "Unselected"


class RecordedSilo:
    """A silo that fails in the rounds in which the recorded run left its client out."""

    def __init__(self, runner: Runner, selected: np.ndarray) -> None:
        self.runner, self.selected = runner, selected

    def run(self, task: SiloTask, private: State) -> Reply:
        if task.step == "train" and not self.selected[task.phase_round - 1]:
            raise UnselectedError(f"round {task.round}")
        return self.runner.run(task, private)


REPOSITORIES = {"niid": niid_bench, "map": map_repository, "feddynrepo": feddyn_repository}
"""First part of a fixture's name -> how the repository that recorded it trains."""


def run_recorded_job(
    directory: Path,
    method: str,
    fixture: str,
    rounds: int,
    config: dict[str, Any] | None = None,
    *,
    stop: int | None = None,
    **sections: Any,
) -> tuple[RoundEngine, list[LocalSilo]]:
    """A job of the method with the data, the settings and the selected clients of a fixture, after its rounds.

    :param stop: rounds after which to look at it, where it has more.
    """
    npz = reference_numbers.load(fixture)
    settings = REPOSITORIES[fixture.partition("_")[0]](npz)
    spec = fixture_spec(method, fixture, rounds, method={"config": config or {}}, **settings | sections)
    answering: dict[str, Runner] = dict(fixture_runners(spec, fixture))
    if "selected" in npz:
        for k, (silo, runner) in enumerate(answering.items()):
            answering[silo] = RecordedSilo(runner, npz["selected"][:, k])
    engine, silos = open_engine(directory / "aggregator", spec), local_silos(directory, answering)
    while not engine.ended and (stop is None or len(engine.history()) < stop):
        answered = [silo for silo in silos if silo.answer(engine)]
        assert engine.settle() or answered
    if engine.failure is not None:
        raise engine.failure
    return engine, silos


def as_recorded(
    directory: Path,
    method: str,
    fixture: str,
    rounds: int,
    config: dict[str, Any] | None = None,
    **sections: Any,
) -> RoundEngine:
    """Run the fixture's job as `recorded` does, where what the silos keep does not matter."""
    return run_recorded_job(directory, method, fixture, rounds, config, **sections)[0]


def recorded_silo(method: str, fixture: str) -> SiloContext:
    """A silo that holds the only data of a fixture, `x` and `y`."""
    path = reference_numbers.path(fixture)
    spec = fixture_spec(method, fixture, 1)
    (runner,) = runners(spec, [silo_of_file(path, "c0", features="x", labels="y")], path.parent).values()
    return runner.context
