"""A private reply has what a mechanism has noised, and all else as the task handed it out, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.errors import MethodError, PolicyRefused
from fedsilo.learning.models import Model
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import Tree
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.transforms.training_noise.unprotected_tensors import (
    exact_tensors,
    require_handed_out,
    require_private,
)
from fedsilo.wire import Contract, ExpectedBlock
from tests.federate import job_spec, runners, skewed_silos

MODEL: Tree = {
    "weight": np.ones((2, 3), np.float32),
    "mean": np.array([0.0, -0.0, 1.0], np.float32),
    "seen": np.array(7, np.int64),
    "active": np.array([True, False]),
}
NOISED_MODEL = MODEL | {"weight": MODEL["weight"] + np.float32(1)}
STATED_NOISE: dict[str, Any] = {"mechanisms": (Mechanism(1.0, 0.5, 3),), "noised": frozenset({"weight"})}

CHANGED_TENSORS: Mapping[str, np.ndarray] = {
    "mean": np.array([0.0, 0.0, 1.0], np.float32),  # equal, and not to the bit
    "seen": np.array(8, np.int64),
    "active": np.array([True, True]),
}


def task(tree: Tree = MODEL) -> SiloTask:
    return SiloTask("train", "train", 1, 1, 1, {"model": tree}, {})


def test_a_reply_of_noised_tensors_and_what_was_handed_out_is_taken() -> None:
    require_private(Reply(dict(NOISED_MODEL), **STATED_NOISE), task())
    require_private(Reply({}), task())


@pytest.mark.parametrize("name", CHANGED_TENSORS)
def test_a_tensor_that_is_neither_is_named(name: str) -> None:
    with pytest.raises(MethodError, match=f"tensor '{name}': is neither clipped and noised nor as"):
        require_private(Reply({**NOISED_MODEL, name: CHANGED_TENSORS[name]}, **STATED_NOISE), task())
    without = {key: array for key, array in MODEL.items() if key != name}
    with pytest.raises(MethodError, match=f"tensor '{name}'"):
        require_private(Reply(dict(NOISED_MODEL), **STATED_NOISE), task(without))


def test_noise_without_a_mechanism_is_none() -> None:
    with pytest.raises(MethodError, match=r"tensor 'weight': .*names no mechanism"):
        require_private(Reply(dict(NOISED_MODEL), noised=STATED_NOISE["noised"]), task())


def test_a_guard_compares_what_has_no_fractions() -> None:
    blocks = [ExpectedBlock("model", name, array.shape, array.dtype.name) for name, array in MODEL.items()]
    counts = ExpectedBlock("class_counts", "count/0", (), "int64", 0)
    assert exact_tensors(Contract((*blocks, counts))) == ("seen", "active")
    require_handed_out(("seen", "active"), NOISED_MODEL.__getitem__, MODEL)
    for name in ("seen", "active"):
        with pytest.raises(PolicyRefused, match=f"block {name}: is not as the task handed it out"):
            require_handed_out([name], {**NOISED_MODEL, name: CHANGED_TENSORS[name]}.__getitem__, MODEL)
        with pytest.raises(PolicyRefused, match=f"block {name}"):
            require_handed_out([name], NOISED_MODEL.__getitem__, {})


class RunningMean(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 5)
        self.register_buffer("mean", torch.zeros(5))

    @override
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.hidden(x)
        if self.training:
            self.mean.lerp_(found.detach().mean(dim=0), 0.5)
        return found


def running_mean(input_shape: tuple[int, ...], classes: int) -> Model:
    """A network for `spec.model.name`."""
    return Model(RunningMean(), nn.Linear(5, classes))


def job(network: str, unit: str = "example", **given: Any) -> Any:
    private = {"unit": unit, "noiseMultiplier": 1.0, "delta": 1e-3} | given
    return job_spec(
        "fedavg",
        ["a"],
        model={"name": f"python:{__name__}:{network}", "config": {}},
        training={"batchSize": 6, "localSteps": 30},
        privacy={"differentialPrivacy": private},
    )


def test_a_network_with_a_running_mean_is_refused_before_round_1(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1]})
    with pytest.raises(MethodError, match=r"tensor 'encoder\.mean': the network changes it"):
        runners(job("running_mean"), silos, tmp_path)
    assert runners(job("running_mean", "silo", maxUpdateNorm=1), silos, tmp_path)
