"""FedAvgM, FedOpt and the server's steps: released numbers, the printed formulas, and what is never stepped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.engine.context import JobContext
from fedsilo.methods import registry
from fedsilo.methods.interface import ServerHalf
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature, TensorSpec
from tests import reference_numbers
from tests.federate import job_spec, model_of, references
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    ROUND,
    answers,
    as_recorded,
    assert_close,
)

SILOS = ("silos/s0", "silos/s1")


def open_server(
    method: str, model: Tree, config: Mapping[str, Any]
) -> tuple[JobContext, ServerHalf[Any], State]:
    """Context, server half and first state of a job of two silos that begins with this model."""
    spec = job_spec(method, 2, method={"config": config})
    tensors = tuple(TensorSpec(name, array.shape, str(array.dtype)) for name, array in model.items())
    bound = registry.bind(spec)
    job = JobContext(spec, ModelSignature(tensors, 4, 5), references(spec), initial=model)
    half = bound.server()
    return job, half, half.start(job)


RECORDED_RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("fedavgm_paper", "fedavgm", {}),
    ("fedavgm_moon", "fedavgm", {"variant": "moon"}),
    ("fedavgm_fedbe", "fedavgm", {"variant": "moon"}),
    ("fedavgm_flbench_nesterov", "fedavgm", {"variant": "fl-bench"}),
    *((name, "fedopt", {"optimizer": name, "variant": "released"}) for name in ("adam", "yogi", "adagrad")),
]


@pytest.mark.parametrize(("name", "method", "config"), RECORDED_RUNS)
def test_every_round_is_that_of_the_released_code(name: str, method: str, config: dict[str, Any]) -> None:
    npz = reference_numbers.load("server_optimizers")
    settings = {"momentum": float(npz["server_momentum"])}
    if method == "fedopt":
        rates = {"serverLearningRate": "lr", "beta1": "beta1", "beta2": "beta2", "tau": "tau"}
        settings = {field: float(npz[key]) for field, key in rates.items()}
    job, half, state = open_server(method, {"w": npz["w0"]}, config | settings)
    for round in (1, 2, 3):
        sent = {silo: {"model": {"w": npz[f"client/{round}/{k}"]}} for k, silo in enumerate(SILOS)}
        samples = dict(zip(SILOS, (npz["weights"] * 4).astype(int).tolist(), strict=True))
        state = half.aggregate(job, state, ROUND, answers(sent, samples))
        assert_close(state.tree("model"), {"w": npz[f"{name}/round{round}"]})


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_sgd_at_the_server_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_fedopt_sgd")
    config = {
        "optimizer": "sgd",
        "serverLearningRate": float(npz["arg/glo_lr"]),
        "beta1": float(npz["arg/momentum"]),
    }
    engine = as_recorded(tmp_path, "fedopt", "map_fedopt_sgd", rounds, config)
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/g/"))


def test_the_printed_second_moment_begins_at_tau_squared() -> None:
    tau, rate = 0.5, 0.25
    config = {"tau": tau, "serverLearningRate": rate, "beta1": 0.5, "beta2": 0.75}
    w, other = np.array([1.0, 2.0], np.float32), np.array([2.0, 0.0], np.float32)
    job, half, state = open_server("fedopt", {"w": w}, config)
    state = half.aggregate(job, state, ROUND, answers({silo: {"model": {"w": other}} for silo in SILOS}))
    delta = other - w
    expected = w + rate * 0.5 * delta / (np.sqrt(0.75 * tau**2 + 0.25 * delta**2) + tau)
    assert_close(state.tree("model"), {"w": expected})


STEPPING: list[tuple[str, dict[str, Any]]] = [
    ("fedavgm", {}),
    ("fedavgm", {"variant": "fl-bench"}),
    *(("fedopt", {"optimizer": name}) for name in ("adam", "yogi", "adagrad", "sgd")),
    ("fednova", {"serverMomentum": 0.9}),
    ("feddyn", {}),
]


@pytest.mark.parametrize(("method", "config"), STEPPING)
def test_statistics_of_batchnorm_are_averaged_and_have_no_moments(
    method: str, config: dict[str, Any]
) -> None:
    model: Tree = {
        "w": np.ones(2, np.float32),
        "bn.running_var": np.ones(2, np.float32),
        "bn.num_batches_tracked": np.array(4),
    }
    sent: Tree = {
        "w": np.zeros(2, np.float32),
        "bn.running_var": np.full(2, 0.1, np.float32),
        "bn.num_batches_tracked": np.array(7),
    }
    job, half, state = open_server(method, model, config)
    for _ in range(3):
        updates = answers({silo: {"model": sent} for silo in SILOS}, steps=2, normalizer=2)
        state = half.aggregate(job, state, ROUND, updates)
        found = state.tree("model")
        np.testing.assert_allclose(found["bn.running_var"], 0.1, rtol=1e-6)
        assert found["bn.num_batches_tracked"] == 7
        assert {name: array.dtype for name, array in found.items()} == {
            name: array.dtype for name, array in model.items()
        }
    assert all(state.tree(name).keys() == {"w"} for name in state.trees.keys() - {"model"})


@pytest.mark.parametrize(("method", "config"), [("fedavgm", {"momentum": 0}), ("fednova", {})])
def test_without_momentum_it_is_the_mean(method: str, config: dict[str, Any]) -> None:
    job, half, state = open_server(method, {"w": np.ones(2, np.float32)}, config)
    sent = {silo: {"model": {"w": np.full(2, k, np.float32)}} for k, silo in enumerate(SILOS)}
    updates = answers(sent, {"silos/s0": 1, "silos/s1": 3}, steps=5, normalizer=5)
    state = half.aggregate(job, state, ROUND, updates)
    np.testing.assert_allclose(state.tree("model")["w"], 0.75, rtol=1e-6)
