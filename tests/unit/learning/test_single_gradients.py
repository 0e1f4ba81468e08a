"""Gradients of single examples, of networks that are odd in all ways: each is what a backward pass by itself finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.learning.examples import Examples
from fedsilo.learning.private_training import ExamplePrivacy, fit_privately
from fedsilo.learning.single_gradients import LAYER_BY_LAYER, SingleGradients, clipped_sum
from fedsilo.learning.training import LocalTraining
from fedsilo.privacy.mechanism import Mechanism
from tests.unit.learning.odd_networks import (
    CLASSES,
    SEPARABLE_NETWORKS,
    WIDTH,
    Scale,
    ScriptedNetwork,
    line,
    sequential_network,
)

BATCH_EXAMPLES = 4
RANDOM_NETWORKS = {
    "functional dropout",
    "stochastic depth",
    "noise",
    "LSTM",
    "GRU",
    "attention",
    "LayerNorm",
    "transformer",
}
RANDOM_NETWORKS |= {"GroupNorm", "InstanceNorm"}


def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(features), labels)


def examples(n: int = BATCH_EXAMPLES, seed: int = 1) -> Examples:
    features = np.random.default_rng(seed).uniform(0, 3, (n, WIDTH)).astype(np.float32)
    return Examples.from_arrays(features, np.arange(n) % CLASSES, "cpu")


def clipped_gradient_sums(model: nn.Module, given: Examples, norm: float) -> list[Tensor]:
    """The sum of clipped gradients, by one backward pass for each example."""
    trained = list(model.parameters())
    sums = [torch.zeros(each.shape) for each in trained]
    for place in range(len(given)):
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(model, *given.batch(torch.tensor([place]))))
        found = [
            torch.zeros(each.shape) if each.grad is None else each.grad.to_dense().float() for each in trained
        ]
        factor = min(1.0, norm / float(torch.cat([each.flatten() for each in found]).norm()))
        for total, each in zip(sums, found, strict=True):
            total += factor * each
    model.zero_grad(set_to_none=True)
    return sums


@pytest.mark.parametrize("name", sorted(SEPARABLE_NETWORKS.keys() - RANDOM_NETWORKS))
def test_a_private_step_is_along_the_sum_of_the_clipped_gradients_of_each_example_by_itself(
    name: str,
) -> None:
    model, given = SEPARABLE_NETWORKS[name](), examples()
    model.train()
    before = [each.detach().float().clone() for each in model.parameters()]
    buffers = [each.clone() for each in model.buffers()]
    sums = clipped_gradient_sums(model, given, 1.0)
    plan = LocalTraining(lr=1.0, batch_size=BATCH_EXAMPLES, max_steps=1)
    privacy = ExamplePrivacy(Mechanism(1e-12), 1.0, np.random.default_rng(0))
    assert fit_privately(model, given, plan, privacy, loss).steps == 1
    close = 2e-2 if name == "half precision" else 1e-5
    for was, now, total in zip(before, model.parameters(), sums, strict=True):
        torch.testing.assert_close(now.detach().float(), was - total / BATCH_EXAMPLES, atol=close, rtol=close)
    assert any(bool((now.detach() != was).any()) for was, now in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(was, now) for was, now in zip(buffers, model.buffers(), strict=True))
    left = {name for owner in (*model.parameters(), *model.modules()) for name in vars(owner)}
    assert not left & {
        "grad_sample",
        "activations",
        "max_batch_len",
        "_forward_counter",
        "ft_compute_sample_grad",
    }


def test_what_a_compiled_network_did_before_does_not_keep_hooks_from_it() -> None:
    """A plain job ran in the same process: its compiled code knows nothing of hooks."""

    def build() -> Any:
        return torch.compile(sequential_network(nn.ReLU()), backend="eager")

    plain, model, given = build(), build(), examples()
    for _ in range(2):
        loss(plain, *given.batch(torch.arange(BATCH_EXAMPLES))).backward()  # type: ignore[no-untyped-call]
    sums = clipped_gradient_sums(sequential_network(nn.ReLU()), given, 1e6)
    with SingleGradients(model, list(model.parameters()), loss) as single:
        assert single.choose(*given.batch(torch.arange(BATCH_EXAMPLES))) == LAYER_BY_LAYER
        found = [torch.zeros(each.shape) for each in sums]
        single.add_clipped(found, *given.batch(torch.arange(BATCH_EXAMPLES)), 1e6)
    torch.testing.assert_close(found, sums)


def test_a_branch_that_hooks_do_not_see_is_found_when_it_comes_to_take_part() -> None:
    """A gate that begins at zero hides it from the first look."""

    class LateNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gate, self.branch = (
                nn.Linear(WIDTH, CLASSES),
                nn.Parameter(torch.zeros(())),
                ScriptedNetwork(),
            )

        @override
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x) + self.gate * self.branch(x)
            return y

    model, given = LateNetwork(), examples()
    whole = given.batch(torch.arange(BATCH_EXAMPLES))
    with SingleGradients(model, list(model.parameters()), loss) as single:
        single.choose(*whole)
        with torch.no_grad():
            model.gate.fill_(1.0)
        sums = [torch.zeros(each.shape) for each in model.parameters()]
        single.add_clipped(sums, *whole, 1e6)
    torch.testing.assert_close(sums, clipped_gradient_sums(model, given, 1e6))


def test_no_example_meets_what_another_left_in_the_network() -> None:
    """A forward pass that changes weights in place is undone, so that an example moves a step by one norm at most."""

    class RenormalisedNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, CLASSES)

        @override
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.layer.weight.data.mul_(1 + x.abs().mean())
            y: Tensor = self.layer(x)
            return y

    def gradient_sum(n: int) -> Tensor:
        torch.manual_seed(0)
        model, given = RenormalisedNetwork(), examples(5)
        before = model.layer.weight.detach().clone()
        with SingleGradients(model, list(model.parameters()), loss) as single:
            sums = [torch.zeros(each.shape) for each in model.parameters()]
            single.add_clipped(sums, *given.batch(torch.arange(n)), 0.5)
        assert torch.equal(model.layer.weight, before)
        return torch.cat([each.flatten() for each in sums])

    assert float((gradient_sum(5) - gradient_sum(4)).norm()) <= 0.5 + 1e-6


def test_a_number_by_itself_is_clipped_by_its_magnitude() -> None:
    sums = [torch.zeros(())]
    clipped_sum(sums, [torch.tensor([3.0, -0.5, float("nan"), float("inf")])], 1.0)
    assert float(sums[0]) == pytest.approx(0.5)


def test_sums_in_half_precision_are_not_rounded_by_more_than_an_example_adds() -> None:
    """Each of a thousand gradients of norm one thousandth counts."""
    sums = [torch.zeros(1)]
    clipped_sum(sums, [torch.full((1000, 1), 1e-3, dtype=torch.bfloat16)], 1.0)
    assert float(sums[0]) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("build", [Scale, lambda: line(lambda x: x.detach())])
def test_a_network_of_which_nothing_is_learned_is_no_private_training(build: Callable[[], nn.Module]) -> None:
    model = build()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    problem = "no parameter of the network has a part in the loss"
    with SingleGradients(model, [], loss) as single, pytest.raises(MethodError, match=problem):
        single.choose(*examples().batch(torch.arange(BATCH_EXAMPLES)))
