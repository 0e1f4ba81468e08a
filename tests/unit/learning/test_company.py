"""Networks in which examples see each other are told from those that take each by itself, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsilo.errors import MethodError
from fedsilo.learning.company import NEEDED, made_up_inputs, require_apart
from tests.unit.learning.odd_networks import APART, CLASSES, MIXING, WIDTH

LABELS = torch.arange(NEEDED) % CLASSES
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


@pytest.mark.parametrize("build", APART.values(), ids=APART)
def test_a_network_that_takes_each_example_by_itself_is_let_be(build: Callable[[], nn.Module]) -> None:
    model = build()
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
        require_apart(APART["linear"](), INPUTS, LABELS, contrastive)


def test_a_network_that_fails_on_every_made_up_input_is_refused_with_its_own_words() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("only on Sundays")

    with pytest.raises(MethodError, match=r"fails on made-up inputs of shape \[7, 6\].*only on Sundays"):
        require_apart(Fails(), INPUTS, LABELS, loss)


def test_inputs_on_which_the_network_fails_are_passed_over_where_there_are_others() -> None:
    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            if (x != x.round()).any():
                raise ValueError("codes only")
            y: Tensor = self.layer(x)
            return y

    require_apart(Codes(), INPUTS, LABELS, loss)


def test_tokens_are_made_up_as_tokens() -> None:
    (tokens,) = made_up_inputs(torch.zeros(1, 5, dtype=torch.int64), 9)
    assert (tokens.dtype, tokens.shape) == (torch.int64, (NEEDED, 5))
    assert 0 <= tokens.min() < tokens.max() <= 8
