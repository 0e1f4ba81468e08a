"""Networks of jobs with differential privacy keep nothing of the examples that they see, in no kind of state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.learning.company import NEEDED_EXAMPLES, made_up_inputs, require_apart


class Network(nn.Module):
    """What is made of an example goes through `keep`, which may keep something of it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 5)
        self.head = nn.Linear(5, 4)
        nn.init.zeros_(self.head.weight)  # which shows nothing of what is before it

    def keep(self, x: Tensor) -> Tensor:
        return x

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.keep(self.hidden(x)))
        return logits


class RunningMean(Network):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))

    @override
    def keep(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.mean(dim=0), 0.1)
        return x


class Counter(Network):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @override
    def keep(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x


class Scale(Network):
    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.tensor(0.0))

    @override
    def keep(self, x: Tensor) -> Tensor:
        self.largest.copy_(torch.maximum(self.largest, x.max()))
        return x


class Mask(Network):
    active: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("active", torch.zeros(5, dtype=torch.bool))

    @override
    def keep(self, x: Tensor) -> Tensor:
        self.active |= (x > 0).any(dim=0)
        return x


class FrozenNetwork(Network):
    """A parameter that is not trained, and changed all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(5), requires_grad=False)

    @override
    def keep(self, x: Tensor) -> Tensor:
        self.centre.data += x.detach().mean(dim=0)
        return x


class Spectral(Network):
    """Its vector follows from weights alone, and is not noised when they are."""

    def __init__(self) -> None:
        super().__init__()
        torch.nn.utils.spectral_norm(self.hidden)


class NotPersistent(RunningMean):
    """No part of the state, and in the gradients of all examples that come later."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(5), persistent=False)

    @override
    def keep(self, x: Tensor) -> Tensor:
        return super().keep(x) - self.mean


class Attribute(Network):
    last: Tensor | float = 0.0

    @override
    def keep(self, x: Tensor) -> Tensor:
        before, self.last = self.last, x.detach().mean()
        return x + before


class Cache(Network):
    """A table that the first pass makes, whatever the examples are."""

    table: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None, persistent=False)

    @override
    def keep(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(5.0)
        return x + self.table


class Noting(Network):
    """What it notes it never reads."""

    @override
    def keep(self, x: Tensor) -> Tensor:
        self.last = x.detach()
        return x


class Buffers(Network):
    """Buffers of each kind that nothing changes, and noise of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(5))
        self.register_buffer("seen", torch.tensor(3))
        self.register_buffer("active", torch.ones(5, dtype=torch.bool))
        self.centre = nn.Parameter(torch.ones(5), requires_grad=False)
        self.norm, self.dropout = nn.GroupNorm(1, 5), nn.Dropout(0.5)

    @override
    def keep(self, x: Tensor) -> Tensor:
        found: Tensor = self.dropout(self.norm(x) * self.mean * self.centre)
        return found


def check_network(network: nn.Module) -> None:
    require_apart(network, made_up_inputs(torch.zeros(1, 6), None), torch.arange(NEEDED_EXAMPLES) % 4, loss)


def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(features), labels)


@pytest.mark.parametrize(
    ("build", "tensor"),
    [
        (RunningMean, "mean"),
        (Counter, "seen"),
        (Scale, "largest"),
        (Mask, "active"),
        (FrozenNetwork, "centre"),
        (Spectral, "hidden.weight_u"),
        (Cache, "table"),
    ],
)
def test_a_tensor_that_a_training_pass_changes_is_named(build: Callable[[], nn.Module], tensor: str) -> None:
    with pytest.raises(
        MethodError, match=rf"^spec\.privacy\.differentialPrivacy: tensor '{tensor}': the network"
    ):
        check_network(build())


@pytest.mark.parametrize("build", [NotPersistent, Attribute])
def test_a_network_that_remembers_examples_outside_of_its_state_is_refused(
    build: Callable[[], nn.Module],
) -> None:
    with pytest.raises(MethodError, match=r"^spec\.privacy\.differentialPrivacy: "):
        check_network(build())


@pytest.mark.parametrize("build", [Network, Noting, Buffers])
def test_a_network_that_learns_by_its_parameters_alone_is_taken(build: Callable[[], nn.Module]) -> None:
    network, before = build(), torch.random.get_rng_state()
    check_network(network)
    assert (torch.random.get_rng_state() == before).all()
