"""Networks in which examples see each other are told from those that take each by itself, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.learning.company import COMPANY, NEEDED_EXAMPLES, made_up_inputs, require_apart
from fedsilo.learning.single_gradients import TRIED_EXAMPLES
from tests.tiers import mark_thorough
from tests.unit.learning.odd_networks import CLASSES, MIXING, SEPARABLE_NETWORKS, WIDTH

LABELS = torch.arange(NEEDED_EXAMPLES) % CLASSES
INPUTS = made_up_inputs(torch.zeros(1, WIDTH), None)


def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, also of a dictionary of outputs."""
    outputs = model(features)
    return functional.cross_entropy(outputs["logits"] if isinstance(outputs, dict) else outputs, labels)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(("build", "said"), MIXING.values(), ids=MIXING)
def test_a_network_whose_examples_see_each_other_is_refused_by_the_module_that_does_it(
    build: Callable[[], nn.Module], said: str
) -> None:
    model = build()
    before = state(model)
    with pytest.raises(MethodError, match=rf"^spec\.privacy\.differentialPrivacy: .*{said}"):
        require_apart(model, INPUTS, LABELS, loss)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", mark_thorough(SEPARABLE_NETWORKS, {"linear", "LayerNorm", "GroupNorm"}))
def test_a_network_that_takes_each_example_by_itself_is_let_be(name: str) -> None:
    model = SEPARABLE_NETWORKS[name]()
    before, drawn = state(model), torch.get_rng_state()
    require_apart(model, INPUTS, LABELS, loss)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model.training
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())


def test_a_loss_over_pairs_of_examples_is_refused() -> None:
    def contrastive(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        outputs = functional.normalize(model(features), dim=1)
        return functional.cross_entropy(outputs @ outputs.T, torch.arange(len(labels)))

    with pytest.raises(MethodError, match="not the sum of its examples' gradients"):
        require_apart(SEPARABLE_NETWORKS["linear"](), INPUTS, LABELS, contrastive)


def test_a_network_that_fails_on_every_made_up_input_is_refused_with_its_own_words() -> None:
    class Fails(nn.Module):
        @override
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("only on Sundays")

    with pytest.raises(MethodError, match=r"fails on made-up inputs of shape \[7, 6\].*only on Sundays"):
        require_apart(Fails(), INPUTS, LABELS, loss)


class Keeps(nn.Module):
    """Adds something of the batch before, in one mode only, and computes nothing in the other."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.layer, self.mode, self.before = nn.Linear(WIDTH, CLASSES), mode, [torch.zeros(())]

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.training is not self.mode:
            raise ValueError("only on Sundays")
        outputs: Tensor = self.layer(x) + 0.001 * self.layer.weight.sum() * self.before.pop()
        self.before.append(x.detach().mean())
        return outputs


class Single(nn.Module):
    """Takes each example by itself, and fails where `refuses` says so."""

    def __init__(self, refuses: Callable[[Single, Tensor], bool]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.refuses = nn.Linear(WIDTH, CLASSES), refuses
        self.begun = self.layer.weight.detach().clone()

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.refuses(self, x):
            raise ValueError("only on Sundays")
        outputs: Tensor = self.layer(x)
        return outputs


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_a_network_that_keeps_examples_in_the_only_mode_that_it_has_is_refused(mode: bool) -> None:
    with pytest.raises(MethodError, match="keeps something of them" if mode else "fails on made-up inputs"):
        require_apart(Keeps(mode), INPUTS, LABELS, loss)


NEVER_CALLED: dict[str, Callable[[Single, Tensor], bool]] = {
    "in training mode": lambda network, x: network.training and len(x) == COMPANY,
    "in evaluation mode": lambda network, _: not network.training,
    "for the gradients of its loss": lambda _, x: len(x) == TRIED_EXAMPLES,
    "in training mode and with its weights moved a little": lambda network, _: (
        not torch.equal(network.layer.weight, network.begun)
    ),
}
"""What is compared on no inputs at all -> where the network fails, which computes all else."""


@pytest.mark.parametrize("how", NEVER_CALLED)
def test_a_network_for_which_one_comparison_cannot_be_made_is_refused(how: str) -> None:
    with pytest.raises(MethodError, match=f"fails on made-up inputs .*, {how}: .*only on Sundays"):
        require_apart(Single(NEVER_CALLED[how]), INPUTS, LABELS, loss)


def test_inputs_on_which_the_network_fails_are_passed_over_where_there_are_others() -> None:
    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, CLASSES)

        @override
        def forward(self, x: Tensor) -> Tensor:
            if (x != x.round()).any():
                raise ValueError("codes only")
            y: Tensor = self.layer(x)
            return y

    require_apart(Codes(), INPUTS, LABELS, loss)


def test_tokens_are_made_up_as_tokens() -> None:
    (tokens,) = made_up_inputs(torch.zeros(1, 5, dtype=torch.int64), 9)
    assert (tokens.dtype, tokens.shape) == (torch.int64, (NEEDED_EXAMPLES, 5))
    assert 0 <= tokens.min() < tokens.max() <= 8
