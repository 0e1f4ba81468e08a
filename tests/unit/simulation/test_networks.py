"""Copies of a network are deep copies, whatever the network is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.learning.models import Model, build_model, build_module
from fedsilo.learning.networks import BUILDERS
from fedsilo.simulation import networks
from fedsilo.simulation.networks import NetworkStore, copier
from tests.unit.learning.specs import data_spec, model_spec


class TiedNetwork(nn.Module):
    """Two layers of one weight, a buffer outside the state, and a function made on the spot."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.first.weight.requires_grad_(False)
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.activation: Callable[[Tensor], Tensor] = lambda x: torch.relu(x)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, 4) -> (n, 4)."""
        return self.activation(self.second(self.first(x))) * self.get_buffer("scale")


class Views(nn.Module):
    """A buffer, and a row of it under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(2, 4))
        self.row = self.get_buffer("table")[0]

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, 4) -> (n, 4)."""
        return x + self.row


def _storages(network: nn.Module) -> set[int]:
    return {tensor.data_ptr() for tensor in (*network.parameters(), *network.buffers())}


@pytest.mark.parametrize("name", BUILDERS)
def test_a_copy_of_every_network_computes_the_same_and_shares_nothing(name: str) -> None:
    original = build_model(model_spec(name), data_spec(3, 32, 32), seed=0)
    made = copier(original)()
    assert isinstance(made, Model)
    assert not _storages(made) & _storages(original)
    assert str(made) == str(copy.deepcopy(original))
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(made.eval()(x), original.eval()(x))


def test_what_was_one_tensor_is_one_tensor_in_the_copy() -> None:
    tied = TiedNetwork()
    nn.init.eye_(tied.first.weight)  # with weights that are drawn, all outputs may be 0
    network = Model(tied, nn.Linear(4, 3))
    made = copier(network)()
    assert isinstance(made.encoder, TiedNetwork)
    assert made.encoder.first.weight is made.encoder.second.weight
    assert not made.encoder.first.weight.requires_grad
    assert made.classifier.weight.requires_grad
    with torch.no_grad():
        made.encoder.first.weight.zero_()
        made.encoder.get_buffer("scale").zero_()
    assert network.encoder(torch.ones(1, 4)).abs().sum() > 0
    assert copier(network)().encoder(torch.ones(1, 4)).abs().sum() > 0


def test_what_shares_a_storage_still_does_in_the_copy() -> None:
    network = Model(Views(), nn.Linear(4, 3))
    made = copier(network)().encoder
    assert isinstance(made, Views) and isinstance(network.encoder, Views)
    made.get_buffer("table").fill_(1)
    assert made.row.tolist() == [1, 1, 1, 1]
    assert network.encoder.row.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "layer",
    [
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
        nn.utils.parametrizations.orthogonal(nn.Linear(4, 2)),
    ],
    ids=["weight norm", "orthogonal"],
)
def test_what_cannot_be_pickled_is_copied_too(layer: nn.Module) -> None:
    network = Model(layer, nn.Linear(2, 3))
    made = copier(network)()
    x = torch.rand(5, 4)
    assert torch.equal(made(x), network(x))
    assert not _storages(made) & _storages(network)


def test_a_network_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def count_build(model: ModelSpec, data: DataSpec, seed: int, task: LearningTaskSpec | None) -> nn.Module:
        built.append(model.name)
        return build_module(model, data, seed, task)

    monkeypatch.setattr(networks, "build_module", count_build)
    made = NetworkStore(data_spec(4))
    one, other = (made.new_network(model_spec("mlp")) for _ in range(2))
    assert built == ["mlp"]
    assert one is not other
