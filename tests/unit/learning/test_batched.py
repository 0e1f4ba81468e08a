"""Training several clients at once is training each of them: in double precision, to twelve digits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from typing_extensions import override

from fedsilo.api.data import DataSpec
from fedsilo.api.job import ModelSpec
from fedsilo.api.training import AugmentationSpec
from fedsilo.errors import DataInvalid, MethodError
from fedsilo.learning.batched import BatchedClient, fit_batched
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, build_model, load_tree, to_tree
from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.training import LocalTraining, fit

DATA = DataSpec.model_validate({"dataset": "images", "classes": 3, "inputShape": [1, 16, 16]})


def network(name: str = "lenet", seed: int = 0) -> Model:
    """In double precision, where rounding cannot hide what is wrong."""
    return build_model(ModelSpec(name=name), DATA, seed).double()


def clients(plan: LocalTraining, sizes: tuple[int, ...]) -> list[BatchedClient]:
    """Each with its own images, order and initial weights."""
    rng = np.random.default_rng(0)
    found = []
    for number, size in enumerate(sizes):
        images = torch.tensor(rng.standard_normal((size, 1, 16, 16)))
        examples = Examples(images, torch.tensor(rng.integers(0, 3, size)))
        found.append(BatchedClient(to_tree(network(seed=number)), examples, replace(plan, seed=number)))
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"epochs": 3, "min_steps": 10},
        {"max_steps": 2},
        {"gradient_clip": 0.05},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"optimizer": "adam", "eps": 1e-3, "weight_decay": 0.1, "min_steps": 5},
        {"optimizer": "adamw", "eps": 1e-3, "weight_decay": 0.1, "min_steps": 5},
        {"drop_last": True, "shuffle": False},
        {"epochs": 2, "augmentation": AugmentationSpec(crop=2, flip=True, rotation=10)},
    ],
)
def test_every_client_gets_what_it_would_get_alone(changes: dict[str, Any]) -> None:
    plan = LocalTraining(lr=0.1, batch_size=4, **changes)
    members = clients(plan, (5, 12, 3, 12, 9))
    for client, (tree, report) in zip(members, fit_batched(network(), members), strict=True):
        model = network()
        load_tree(model, client.tree)
        alone = fit(model, client.examples, client.plan)
        assert (report.steps, report.examples) == (alone.steps, alone.examples)
        assert report.loss == pytest.approx(alone.loss, abs=1e-12)
        for name, array in to_tree(model).items():
            assert np.abs(tree[name] - array).max() < 1e-12, name


@pytest.mark.parametrize("changes", [{"momentum": 0.9}, {"optimizer": "adam", "eps": 1e-3}], ids=str)
def test_every_client_keeps_its_own_state(changes: dict[str, Any]) -> None:
    members = clients(LocalTraining(lr=0.01, batch_size=4, **changes), (5, 12, 9))
    together, alone = [[OptimizerState() for _ in members] for _ in range(2)]
    for number in range(2):
        now = [replace(m, plan=replace(m.plan, kept=k)) for m, k in zip(members, together, strict=True)]
        if number == 1:
            now = [now[0], replace(now[1], plan=replace(now[1].plan, kept=None)), now[2]]  # it forgets
        found = fit_batched(network(), now)
        for client, kept, (tree, _) in zip(now, alone, found, strict=True):
            model = network()
            load_tree(model, client.tree)
            fit(model, client.examples, replace(client.plan, kept=client.plan.kept and kept))
            for name, array in to_tree(model).items():
                assert np.abs(tree[name] - array).max() < 1e-12, name
    for one, other in zip(together, alone, strict=True):
        assert one.steps == other.steps and one.trees.keys() == other.trees.keys()
        for kind, found_there in one.trees.items():
            for name, moments in found_there.items():
                assert np.abs(moments - other.trees[kind][name]).max() < 1e-12, name


class SummedNetwork(torch.nn.Module):
    """Two weights that are used as their sum, and so have one gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.full((5, 256), 0.01))
        self.other = torch.nn.Parameter(torch.full((5, 256), -0.02))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1, 16, 16) -> (n, 5)."""
        return x.flatten(1) @ (self.one + self.other).T


@pytest.mark.parametrize("changes", [{"weight_decay": 0.3}, {"gradient_clip": 0.05}])
def test_parameters_that_share_a_gradient_each_keep_their_own_step(changes: dict[str, Any]) -> None:
    plan = LocalTraining(lr=0.1, batch_size=4, **changes)

    def double_model() -> Model:
        return Model(SummedNetwork(), torch.nn.Linear(5, 3)).double()

    torch.manual_seed(0)
    tree = {name: array.copy() for name, array in to_tree(double_model()).items()}
    members = [replace(client, tree=tree) for client in clients(plan, (8, 6))]
    for client, (found, _) in zip(members, fit_batched(double_model(), members), strict=True):
        model = double_model()
        load_tree(model, tree)
        fit(model, client.examples, client.plan)
        for name, array in to_tree(model).items():
            assert np.abs(found[name] - array).max() < 1e-12, name


def test_too_few_examples_and_divergence_are_reported() -> None:
    with pytest.raises(DataInvalid, match="not enough for one step"):
        fit_batched(network(), clients(LocalTraining(lr=0.1), (4, 0)))
    with pytest.raises(MethodError, match="training diverged"):
        fit_batched(network(), clients(LocalTraining(lr=1e200, epochs=8), (4, 4)))


def test_networks_that_mix_clients_are_refused() -> None:
    with pytest.raises(MethodError, match="has BatchNorm"):
        fit_batched(network("resnet8"), clients(LocalTraining(lr=0.1), (4,)))
    model = network()
    model.encoder = torch.nn.Sequential(model.encoder, torch.nn.Dropout())
    with pytest.raises(MethodError, match="has dropout"):
        fit_batched(model, [])
