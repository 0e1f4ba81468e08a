"""A network is used again only as the one that building it anew would give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import remove_parametrizations
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.learning.models import Model, build_module, with_preprocessing
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.methods import registry
from fedsilo.silo.context import open_context
from fedsilo.silo.network_cache import NetworkCache
from fedsilo.silo.runner import TaskRunner
from tests.federate import federate, job_spec, model_of, skewed_silos
from tests.unit.learning.factories import renamed_network

MLP = ModelSpec(name="mlp", config={"hidden": [5]})
SPEC = job_spec("fedavg", 2)


class Counting(nn.Module):
    """Knows how often it was called, and has a buffer that is no part of its state."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.calls = 0
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 6) -> (n, 4)."""
        return torch.as_tensor(self.norm(self.layer(x)) - self.mean)


def hook(*_: object) -> None:
    """A hook that does nothing."""


def used_again(build: Callable[[], nn.Module], use: Callable[[Any], object]) -> bool:
    kept = NetworkCache()
    first = kept.take(MLP, build)
    use(first)
    kept.release()
    return kept.take(MLP, build) is first


def train_module(module: Any) -> None:
    for _ in range(2):
        module(torch.randn(8, 6)).sum().backward()
        torch.optim.SGD(module.parameters(), 0.1).step()


def freeze_module(module: Any) -> None:
    module.eval()
    module.layer.requires_grad_(False)
    module.norm.train()


@pytest.mark.parametrize(
    "use",
    [
        train_module,
        freeze_module,
        lambda module: module.norm.running_mean.add_(1),
        lambda module: setattr(module, "layer", nn.Linear(6, 4)),  # as it was, but for weights
    ],
)
def test_what_every_task_does_to_a_network_is_undone(use: Callable[[Any], object]) -> None:
    assert used_again(Counting, use)


@pytest.mark.parametrize(
    "use",
    [
        lambda module: setattr(module, "calls", 1),
        lambda module: module.mean.add_(1),
        lambda module: module.register_forward_hook(hook),
        lambda module: module.register_forward_pre_hook(lambda *_: None),
        lambda module: module.layer.weight.register_hook(hook),
        lambda module: setattr(module.layer.weight, "lr", 0.1),
        lambda module: setattr(module.layer.weight, "data", torch.ones(6, 4).T),
        lambda module: module.add_module("head", nn.Identity()),
        lambda module: setattr(module, "draw", lambda: 0),
    ],
)
def test_a_network_that_a_task_has_changed_is_built_again(use: Callable[[Any], object]) -> None:
    assert not used_again(Counting, use)


class Local:
    """Networks whose classes and functions have no name that leads to them, and what a task may do to each."""

    @staticmethod
    def build(calls: list[int] | None = None) -> nn.Module:
        seen = calls if calls is not None else list[int]()

        @dataclass
        class Setting:
            scale: float = 1.0

            @property
            def double(self) -> float:
                return 2 * self.scale

        class Half(Counting):
            kept = 0

            def __init__(self) -> None:
                super().__init__()
                self.act, self.setting = (lambda x: x * len(seen[:0])), Setting()

            @staticmethod
            def double_outputs(x: torch.Tensor) -> torch.Tensor:
                return 2 * x

            @override
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.double_outputs(super().forward(x))

        module = Half()
        module.register_forward_hook(lambda *_: None)
        return module


@pytest.mark.parametrize("use", [train_module, freeze_module])
def test_a_network_whose_class_lies_in_a_function_is_used_again(use: Callable[[Any], object]) -> None:
    assert used_again(Local.build, use)


@pytest.mark.parametrize(
    "use",
    [
        lambda module: setattr(module, "act", lambda x: x),
        lambda module: setattr(type(module), "kept", 1),
        lambda module: setattr(type(module), "forward", lambda self, x: x),
        lambda module: setattr(module.setting, "scale", 2.0),
        lambda module: setattr(module.act, "note", 1),
        lambda module: module.act.__closure__[0].cell_contents.append(1),
    ],
)
def test_what_a_task_changes_of_a_class_or_function_without_a_name_is_seen(
    use: Callable[[Any], object],
) -> None:
    assert not used_again(Local.build, use)


def test_a_network_with_parametrizations_is_used_again() -> None:
    def build() -> nn.Module:
        module = Counting()
        parametrizations.weight_norm(module.layer)
        return module

    assert used_again(build, train_module)
    assert not used_again(build, lambda module: remove_parametrizations(module.layer, "weight"))


def test_why_a_network_cannot_be_kept_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def build() -> nn.Module:
        module = Counting()
        module.lock = threading.Lock()  # type: ignore[assignment]
        return module

    kept = NetworkCache()
    for _ in range(3):
        first = kept.take(MLP, build)
        kept.release()
        assert kept.take(MLP, build) is not first
        kept.release()
    (record,) = caplog.records
    assert "'mlp': the network is built anew for every task" in record.getMessage()
    assert "cannot pickle '_thread.lock' object" in record.getMessage()


def test_a_network_that_tasks_change_is_said_once_to_be_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    kept = NetworkCache()
    for _ in range(3):
        taken: Any = kept.take(MLP, Counting)
        taken.calls += 1
        kept.release()
    (record,) = caplog.records
    assert "a task changes more of it than its weights" in record.getMessage()


def test_a_network_with_other_names_in_its_state_is_used_again() -> None:
    assert used_again(lambda: renamed_network((6,), 4), train_module)


def test_a_built_in_network_is_used_again_also_with_preprocessing() -> None:
    def add_preprocessing(module: Any) -> None:
        assert isinstance(module, Model)
        with_preprocessing(module, Preprocessing({name: np.ones(6) for name in ("fill", "mean", "scale")}))

    assert used_again(lambda: build_module(MLP, SPEC.data, 0), add_preprocessing)


def test_a_task_that_needs_two_networks_has_two_and_another_architecture_another() -> None:
    kept = NetworkCache()
    first = kept.take(MLP, Counting)
    assert kept.take(MLP, Counting) is not first
    kept.release()
    assert kept.take(MLP, Counting) is first
    kept.release()
    assert kept.take(ModelSpec(name="mlp", config={"hidden": [6]}), Counting) is not first


def test_flags_and_modes_are_those_of_the_new_network_and_no_gradient_is_kept() -> None:
    def build() -> nn.Module:
        module = Counting()
        module.norm.eval().requires_grad_(False)
        return module

    kept = NetworkCache()
    module: Any = kept.take(MLP, build)
    train_module(module)
    kept.release()
    assert all(tensor.grad is None for tensor in module.parameters())
    module.train().requires_grad_(True)
    again: Any = kept.take(MLP, build)
    assert again is module
    assert (again.training, again.norm.training) == (True, False)
    assert (again.layer.weight.requires_grad, again.norm.weight.requires_grad) == (True, False)


def runners(spec: FederatedJobSpec, directory: Path, kept: bool) -> dict[str, TaskRunner]:
    classes = {"s0": [0, 1], "s1": [1, 2], "s2": [2, 3], "s3": [0, 3]}
    method, found = registry.bind(spec), {}
    for silo in skewed_silos(directory, classes):
        context = open_context(spec, silo, directory)
        found[str(silo)] = TaskRunner(
            method, replace(context, kept_network=NetworkCache()) if kept else context
        )
    return found


@pytest.mark.parametrize(
    "method", ["moon", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("fedavg", "fedconcat"))]
)
def test_a_job_ends_with_the_same_bytes_and_builds_less(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"fedconcat": {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2}}.get(method, {})
    spec = job_spec(method, 4, rounds=2, evaluation={"every": 1}, method={"config": config})
    built = dict.fromkeys((False, True), 0)
    models = {}
    for kept in built:
        directory = tmp_path / str(kept)
        directory.mkdir()

        def build(*arguments: Any, kept: bool = kept) -> nn.Module:
            built[kept] += 1
            return build_module(*arguments)

        answering = runners(spec, directory, kept)
        with monkeypatch.context() as patch:
            patch.setattr("fedsilo.silo.context.build_module", build)
            engine = federate(directory, spec, answering)
        models[kept] = {name: array.tobytes() for name, array in model_of(engine).items()}
    assert models[True] == models[False]
    assert 0 < built[True] < built[False]
