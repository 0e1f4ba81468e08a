"""Jobs over the reference numbers: the released codes' network as a job's own factory, their data as silos.

A test names a fixture and what of the manifest differs; everything else is the code that every job runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedsilo.engine.runner import TaskRunner
from fedsilo.learning.models import Model
from fedsilo.manifests.job import FederatedJobSpec
from tests.federate import job_spec, runners, silo_of_file
from tests.fixture_networks import Fixture, harness_model, load_fixture
from tests.paths import SHARED

CLIENTS = 4


def network(input_shape: tuple[int, ...], classes: int, fixture: str) -> Model:
    """The fixture's network with its initial weights, as `spec.model.name` may name it."""
    del input_shape, classes
    return harness_model(load_fixture(fixture))


def fixture_spec(method: str, fixture: str, rounds: int, **sections: Any) -> FederatedJobSpec:
    """A job whose silos `c0` to `c3` are the fixture's clients."""
    clients = [f"c{k}" for k in range(CLIENTS)]
    model = {"name": f"python:{__name__}:network", "config": {"fixture": fixture}}
    return job_spec(method, clients, rounds, model=model, **sections)


def fixture_runners(spec: FederatedJobSpec, fixture: str) -> dict[str, TaskRunner]:
    """The silos' runners; batches in the given order, as the released codes were run."""
    path = SHARED / "methods" / "fixtures" / f"{fixture}.npz"
    silos = [silo_of_file(path, f"c{k}", features=f"x{k}", labels=f"y{k}") for k in range(CLIENTS)]
    answering = runners(spec, silos, path.parent)
    for runner in answering.values():
        runner.context = replace(runner.context, shuffle=False)
    return answering


def optimizer(npz: Fixture, lr: str, weight_decay: str, momentum: str | None = None) -> dict[str, Any]:
    """`spec.training.optimizer` from the fixture's own hyper-parameters."""
    return {
        "learningRate": float(npz[lr]),
        "momentum": float(npz[momentum]) if momentum else 0.0,
        "weightDecay": float(npz[weight_decay]),
    }
