"""FedAvg jobs against numbers that the released codes produced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.engine.runner import TaskRunner
from fedsilo.errors import FedsiloError
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State, Tree
from tests.federate import Runner, federate, model_of
from tests.fixture_networks import Fixture, fixture_tree, load_fixture
from tests.paths import needs_fixtures
from tests.unit.methods.harness import fixture_runners, fixture_spec, optimizer

pytestmark = needs_fixtures
ROUNDS = (1, 2, 3)


def assert_close(found: Tree, expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 2e-5 * np.abs(value).max(), name


def niid_bench(npz: Fixture) -> dict[str, Any]:
    """Mini-batches at a constant rate, weights by samples."""
    training = {
        "localEpochs": int(npz["hp/epochs"]),
        "batchSize": int(npz["hp/batch_size"]),
        "optimizer": optimizer(npz, "hp/lr", "hp/reg", "hp/rho"),
    }
    return {"training": training}


def map_repository(npz: Fixture) -> dict[str, Any]:
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


def feddyn_repository(npz: Fixture) -> dict[str, Any]:
    """Full batches of plain SGD, a rate that decays from the first round on."""
    training = {
        "localEpochs": int(npz["hp/epoch"]),
        "batchSize": int(npz["sizes"].max()),
        "optimizer": optimizer(npz, "lr", "weight_decay"),
        "gradientClip": float(npz["clip"]),
        "schedule": "exponential",
        "decay": float(npz["lr_decay"]),
    }
    return {"training": training, "participation": {"minSilos": 1}}


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize(
    ("fixture", "sections", "prefix"),
    [("niid_fedavg", niid_bench, "round{}/"), ("map_fedavg", map_repository, "round{}/g/")],
)
def test_every_round_is_that_of_the_released_code(
    tmp_path: Path, fixture: str, sections: Any, prefix: str, rounds: int
) -> None:
    npz = load_fixture(fixture)
    spec = fixture_spec("fedavg", fixture, rounds, **sections(npz))
    federation = federate(tmp_path, spec, fixture_runners(spec, fixture))
    assert_close(model_of(federation), fixture_tree(npz, prefix.format(rounds)))


class Unselected(FedsiloError):
    """The recorded run did not select this client."""

    reason = "Unselected"


class AsRecorded:
    """A silo that fails in the rounds in which the recorded run left its client out."""

    def __init__(self, runner: TaskRunner, selected: np.ndarray) -> None:
        self.runner, self.selected = runner, selected

    def run(self, task: SiloTask, private: State) -> Reply:
        if task.step == "train" and not self.selected[task.round - 1]:
            raise Unselected(f"round {task.round}")
        return self.runner.run(task, private)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_partial_participation_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    fixture = "feddynrepo_fedavg_partial"
    npz = load_fixture(fixture)
    spec = fixture_spec("fedavg", fixture, rounds, **feddyn_repository(npz))
    answering: dict[str, Runner] = {
        silo: AsRecorded(runner, npz["selected"][:, k])
        for k, (silo, runner) in enumerate(fixture_runners(spec, fixture).items())
    }
    federation = federate(tmp_path, spec, answering)
    assert_close(model_of(federation), fixture_tree(npz, f"round{rounds}/sel/"))
    for line, selected in zip(federation.history(), npz["selected"], strict=False):
        assert line["samples"] == {
            f"silos/c{k}": int(npz["sizes"][k]) for k in np.flatnonzero(selected).tolist()
        }
