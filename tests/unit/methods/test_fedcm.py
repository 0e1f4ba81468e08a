"""FedCM against the released codes: their steps, and the direction that the aggregator makes of models and steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.methods.interface import SiloContext, SiloTask
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, runners, silo_of_file
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    MODEL,
    ROUND,
    accepted_updates,
    assert_close,
    bowl,
    fixture_spec,
    server_context,
    steps_of_point,
)


def flat_vector(tree: Tree) -> np.ndarray:
    return np.concatenate([array.ravel() for array in tree.values()])


def test_a_silos_update_is_that_of_the_released_code() -> None:
    fixture = "fedcm_client"
    npz = reference_numbers.load(fixture)
    training = {
        "rounds": 1,
        "device": "cpu",
        "localEpochs": int(npz["epochs"]),
        "batchSize": int(npz["batch"]),
        "gradientClip": float(npz["clip"]),
        "optimizer": {"learningRate": float(npz["lr"])},
    }
    spec = fixture_spec(
        "fedcm", fixture, 1, training=training, method={"config": {"alpha": float(npz["alpha"])}}
    )
    path = reference_numbers.path(fixture)
    (runner,) = runners(spec, [silo_of_file(path, "c0", features="x", labels="y")], path.parent).values()
    runner.context = replace(runner.context, shuffle=False)
    start, delta, direction, at = fixture_tree(npz, "init/"), npz["delta"], {}, 0
    for name, array in start.items():
        direction[name] = delta[at : at + array.size].reshape(array.shape)
        at += array.size
    task = SiloTask("train", "train", 1, 1, 1, {"model": start, "direction": direction}, {})
    sent = runner.run(task, State()).tensors
    found = flat_vector({name: sent[name] - w for name, w in start.items()})
    assert np.abs(found - npz["update"]).max() <= 2e-5 * np.abs(npz["update"]).max()


def stepped_weights(directory: Path, steps: int, direction: np.ndarray, **config: Any) -> np.ndarray:
    npz = reference_numbers.load("fedbr_opt_fedcm")
    optimizer = {"learningRate": float(npz["lr"]), "momentum": float(npz["momentum"])}
    trees: dict[str, Tree] = {
        "model": {"w": npz["w0"].astype(np.float32)},
        "direction": {"w": direction},
    }
    reply = steps_of_point(directory, "fedcm", steps, optimizer, trees, config)
    assert reply.metrics["steps"] == steps
    return reply.tensors["w"]


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_steps_are_those_of_fedbrs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setattr(SiloContext, "loss", bowl)
    npz = reference_numbers.load("fedbr_opt_fedcm")
    found = stepped_weights(tmp_path, steps, npz["delta"], variant="fedbr")
    assert_close({"w": found}, {"w": npz["traj"][steps - 1]})


@pytest.mark.parametrize(("variant", "alpha", "momentum"), [("paper", 0.1, 0.0), ("fedbr", 1.0, 0.9)])
def test_the_first_round_has_no_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, alpha: float, momentum: float
) -> None:
    """Without a direction, steps as printed are only alpha times as long; FedBR's are those of SGD with momentum."""
    monkeypatch.setattr(SiloContext, "loss", bowl)
    npz = reference_numbers.load("fedbr_opt_fedcm")
    w = torch.tensor(npz["w0"], requires_grad=True)
    sgd = torch.optim.SGD([w], lr=alpha * float(npz["lr"]), momentum=momentum)
    for _ in range(3):
        w.grad = w.detach().clone()
        sgd.step()
    found = stepped_weights(tmp_path, 3, np.zeros(3, np.float32), variant=variant)
    np.testing.assert_allclose(found, w.detach().numpy(), rtol=1e-5)


def test_the_direction_is_the_mean_step_of_the_round_at_its_rate() -> None:
    """With weights by samples, silos with different numbers of steps, and a rate in its second round of warm-up."""
    optimizer = {"learningRate": 0.5}
    training = {"rounds": 5, "warmupRounds": 5, "optimizer": optimizer}
    method = bound_method("fedcm", rounds=5, training=training, aggregation={"weights": "samples"})
    job = server_context(method.spec, ModelSignature((), 4, 5))
    w = {"w": np.array([1.0, 2.0]), "bn.running_mean": np.zeros(1)}
    ys = [
        {"w": np.array([0.0, 0.0]), "bn.running_mean": np.ones(1)},
        {"w": np.array([2.0, 2.0]), "bn.running_mean": np.zeros(1)},
    ]
    updates = accepted_updates(
        {f"silos/s{k}": {"model": y} for k, y in enumerate(ys)}, {"silos/s0": 3, "silos/s1": 1}
    )
    for (_, update), steps in zip(updates._updates.items(), (2.0, 4.0), strict=True):
        object.__setattr__(update, "metrics", {"steps": steps})
    state = State({"model": w, "direction": {"w": np.zeros(2)}})
    state = method.server().aggregate(
        job, state, replace(ROUND, phase_round=2, phase_rounds=3), Updates(updates, "samples", MODEL)
    )
    rate = 0.5 * 2 / 5
    expected = 0.75 * (w["w"] - ys[0]["w"]) / (2 * rate) + 0.25 * (w["w"] - ys[1]["w"]) / (4 * rate)
    np.testing.assert_allclose(state.tree("direction")["w"], expected)
    assert set(state.tree("direction")) == {"w"}
    np.testing.assert_allclose(state.tree("model")["w"], [0.5, 0.5])
    np.testing.assert_allclose(state.tree("model")["bn.running_mean"], 0.75)
