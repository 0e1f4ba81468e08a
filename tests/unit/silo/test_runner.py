"""What a method's silo half answers is taken as what it is, or named, before anything of it is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.errors import MethodError
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.runner import TaskRunner
from tests.federate import job_spec, runners, skewed_silos

TASK = SiloTask("train", "train", 1, 1, 1, {}, {})


@pytest.fixture
def runner(tmp_path: Path) -> TaskRunner:
    (found,) = runners(job_spec("fedavg", 1), skewed_silos(tmp_path, {"s0": [0, 1]}), tmp_path).values()
    return found


def answer(runner: TaskRunner, **reply: Any) -> Reply:
    def step(_: SiloContext, __: SiloTask, private: State) -> Reply:
        return Reply(**reply)

    runner._steps = {"train": step}
    return runner.run(TASK, State())


@pytest.mark.parametrize(
    "number", [np.int64(3), np.float32(3), np.ones(1) * 3, torch.tensor(3), torch.tensor([3.0])]
)
def test_numbers_of_numpy_and_pytorch_are_numbers(runner: TaskRunner, number: Any) -> None:
    reply = answer(runner, samples=number, metrics={"loss": number}, support={"count/1": number})
    assert (reply.samples, reply.metrics, reply.support) == (3, {"loss": 3.0}, {"count/1": 3})
    assert [type(found) for found in (reply.samples, reply.metrics["loss"])] == [int, float]


def test_a_number_in_place_of_a_tensor_without_dimensions_is_one(runner: TaskRunner) -> None:
    count = answer(runner, tensors={"count": np.int64(3)}).tensors["count"]
    assert isinstance(count, np.ndarray)
    assert (count.shape, count.dtype.name, count.item()) == ((), "int64", 3)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"samples": 2.5}, "samples of its Reply is a float; give a whole number"),
        ({"samples": float("inf")}, "samples of its Reply is a float"),
        ({"samples": "three"}, "samples of its Reply is a str"),
        ({"samples": torch.tensor([1, 2])}, "samples of its Reply is a Tensor"),
        ({"metrics": {"loss": np.ones(2)}}, "metrics 'loss' of its Reply is a ndarray; give a number"),
        ({"support": {"count/1": None}}, "support 'count/1' of its Reply is a NoneType"),
        ({"tensors": {"w": torch.ones(2)}}, "'w' of Reply.tensors is a Tensor; give NumPy arrays"),
        ({"private": State({"own": [1]})}, "tree 'own' of Reply.private is a list; keep a mapping"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_number_or_array_is_named(
    runner: TaskRunner, reply: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(MethodError, match=rf"step 'train' of method fedavg: {message}"):
        answer(runner, **reply)
