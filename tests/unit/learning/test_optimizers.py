"""The optimisers are those of `torch.optim` to the byte, and go on from the state that they gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedsilo.api.training import OptimizerSpec
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, to_tree
from fedsilo.learning.optimizers import AdamOptimizer, MomentumOptimizer, Optimizer, OptimizerState
from fedsilo.learning.training import LocalTraining, fit
from tests.unit.learning.specs import training_spec

NamedTensors = Mapping[str, Tensor]

PAIRS: dict[str, tuple[Callable[[NamedTensors], Optimizer], Callable[[NamedTensors], Any]]] = {
    "nesterov": (
        lambda p: MomentumOptimizer(p, 0.1, 0.9, 0.01, True),
        lambda p: torch.optim.SGD(p.values(), 0.1, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (
        lambda p: AdamOptimizer(p, 0.1, (0.8, 0.99), 1e-6, 0.01, decoupled=False),
        lambda p: torch.optim.Adam(p.values(), 0.1, (0.8, 0.99), 1e-6, 0.01),
    ),
    "adamw": (
        lambda p: AdamOptimizer(p, 0.1, (0.9, 0.999), 1e-8, 0.1, decoupled=True),
        lambda p: torch.optim.AdamW(p.values(), 0.1, weight_decay=0.1),
    ),
}


def parameters() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (3, 5), "bias": (3,), "seldom": (2,)}
    return {
        name: torch.randn(*shape, generator=generator, requires_grad=True) for name, shape in shapes.items()
    }


def run(tensors: NamedTensors, optimizer: Any, steps: range) -> None:
    inputs = torch.randn(8, 4, 5, generator=torch.Generator().manual_seed(1))
    for number in steps:
        for tensor in tensors.values():
            tensor.grad = None
        loss = torch.nn.functional.linear(inputs[number], tensors["weight"], tensors["bias"]).square().sum()
        # The last parameter has a gradient in every other step only, and keeps its state meanwhile.
        torch.autograd.backward(loss + tensors["seldom"].sum() if number % 2 else loss)
        optimizer.step()


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_bytes_as_pytorch_also_after_the_state_was_laid_down(name: str) -> None:
    make, pytorch = PAIRS[name]
    ours, theirs = parameters(), parameters()
    first = make(ours)
    run(ours, first, range(5))
    second = make(ours)
    second.load(first.state())
    run(ours, second, range(5, 8))
    run(theirs, pytorch(theirs), range(8))
    for one, other in zip(ours.values(), theirs.values(), strict=True):
        assert torch.equal(one, other)


def model() -> Model:
    torch.manual_seed(0)
    return Model(torch.nn.Flatten(), torch.nn.Linear(4, 2))


@pytest.mark.parametrize("changes", [{"momentum": 0.9, "nesterov": True}, {"optimizer": "adamw"}], ids=str)
def test_two_rounds_with_kept_state_are_one_of_twice_the_length(changes: dict[str, Any]) -> None:
    examples = Examples(torch.rand(8, 4, generator=torch.Generator().manual_seed(3)), torch.arange(8) % 2)
    plan = LocalTraining(lr=0.1, batch_size=4, shuffle=False, weight_decay=0.1, **changes)
    whole, halves, forgetful = model(), model(), model()
    fit(whole, examples, LocalTraining(**{**vars(plan), "epochs": 4}))
    kept = OptimizerState()
    for _ in range(2):
        fit(halves, examples, LocalTraining(**{**vars(plan), "epochs": 2, "kept": kept}))
        fit(forgetful, examples, LocalTraining(**{**vars(plan), "epochs": 2}))
    assert kept.replaced
    for name, array in to_tree(whole).items():
        assert np.array_equal(to_tree(halves)[name], array)
        assert not np.array_equal(to_tree(forgetful)[name], array)


def test_the_plan_is_the_manifests() -> None:
    given = {"name": "adamw", "betas": [0.8, 0.9], "eps": 1e-3, "weightDecay": 0.5}
    plan = LocalTraining.of(training_spec(optimizer=given), round=1, rounds=1, seed=0)
    assert (plan.optimizer, plan.betas, plan.eps, plan.weight_decay) == ("adamw", (0.8, 0.9), 1e-3, 0.5)
    plain = LocalTraining.of(training_spec(), round=1, rounds=1, seed=0)
    assert (plain.optimizer, plain.nesterov, plain.betas, plain.eps) == ("sgd", False, (0.9, 0.999), 1e-8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"betas": [0.9, 0.99]}, "has no meaning with sgd; remove it, or use adam or adamw"),
        ({"eps": 1e-4}, "has no meaning with sgd"),
        ({"momentum": 0.0, "nesterov": True}, "has no meaning without momentum"),
        ({"name": "adam", "momentum": 0.5}, "has no meaning with adam; remove it and set the first of betas"),
        ({"name": "adamw", "nesterov": True}, "has no meaning with adamw; remove it, or use sgd"),
        ({"name": "adam", "betas": [0.9]}, "at least 2 items"),
        ({"name": "adam", "betas": [0.9, 1.0]}, "less than 1"),
    ],
)
def test_settings_of_another_optimiser_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OptimizerSpec.model_validate(given)
