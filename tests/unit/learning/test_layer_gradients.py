"""Clipped gradients of a batch, layer by layer: sums and norms are those of each example by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from fedsilo.learning.catalogue import TransformerConfig
from fedsilo.learning.examples import Examples
from fedsilo.learning.layerwise_gradients import LayerwiseGradients
from fedsilo.learning.networks.cct import WIDTH, CompactTransformer
from fedsilo.learning.networks.transformer import TokenEncoder
from fedsilo.learning.private_training import ExamplePrivacy, fit_privately
from fedsilo.learning.single_gradients import LAYER_BY_LAYER, ONE_BY_ONE, SingleGradients
from fedsilo.learning.training import LocalTraining
from fedsilo.privacy.mechanism import Mechanism

CLASSES, SIDE, CODES = 3, 6, 7


class FlatNetwork(nn.Module):
    """A part of a network, and logits of all that it gives of an example."""

    def __init__(self, part: nn.Module, width: int) -> None:
        super().__init__()
        self.part, self.out = part, nn.Linear(width, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.part(x).flatten(1))
        return logits


class CalledLayer(nn.Module):
    """One layer that is called several times; what a convolution gives is written into."""

    def __init__(self, layer: nn.Module, times: int) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    @override
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = functional.relu(self.layer(x), inplace=x.dim() == 4) + x
        return x


class UnusedLayer(nn.Module):
    """A layer that is called, and serves for nothing; another one serves."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.other = layer, nn.Linear(8, 8)

    @override
    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.other(x)
        self.layer(h)
        return torch.tanh(h)


class AddedParameters(nn.Module):
    """Parameters that are added to what is computed of each example, one of them twice."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.added = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in shapes)
        self.layer = nn.Linear(8, 8)

    @override
    def forward(self, x: Tensor) -> Tensor:
        for each in self.added:
            x = torch.tanh(self.layer(x) + each)
        moved: Tensor = self.added[0] + x
        return moved


class CombinedParameters(nn.Module):
    """Two parameters that meet before one of them is added, or one that is added with a factor."""

    def __init__(self, combine: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(5, 8))
        self.combine = combine

    @override
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.combine(x, self.one, self.other))


def pictures(n: int) -> Tensor:
    return torch.randn(n, 4, SIDE, SIDE)


def sequences(n: int) -> Tensor:
    return torch.randn(n, 5, 8)


def codes(n: int) -> Tensor:
    return torch.randint(0, CODES, (n, 5))


def flat_network(part: nn.Module, inputs: Tensor) -> nn.Module:
    return FlatNetwork(part, part(inputs[:1]).flatten(1).shape[1])


def convolution(
    kind: Any, *given: Any, **settings: Any
) -> Callable[[], tuple[nn.Module, Callable[[int], Tensor]]]:
    def build() -> tuple[nn.Module, Callable[[int], Tensor]]:
        axes = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}[kind]

        def make(n: int) -> Tensor:
            return torch.randn(n, 4, *[SIDE] * axes)

        return flat_network(kind(4, *given, **settings), make(1)), make

    return build


def layer(build: Callable[[], nn.Module], make: Callable[[int], Tensor]) -> Any:
    return lambda: (flat_network(build(), make(1)), make)


def frozen_weight() -> nn.Module:
    found = nn.Linear(8, 8)
    found.weight.requires_grad_(False)
    return found


def frozen_scale() -> nn.Module:
    found = nn.GroupNorm(2, 4)
    found.weight.requires_grad_(False)
    return found


LAYERS: dict[str, Callable[[], tuple[nn.Module, Callable[[int], Tensor]]]] = {
    "linear": layer(lambda: nn.Flatten(), sequences),
    "linear of sequences": layer(lambda: nn.Linear(8, 40), sequences),
    "linear of a map": layer(lambda: nn.Linear(SIDE, 5), pictures),
    "linear without a bias": layer(lambda: nn.Linear(8, 3, bias=False), sequences),
    "linear with a frozen weight": layer(frozen_weight, sequences),
    "linear, three times": layer(lambda: CalledLayer(nn.Linear(8, 8), 3), sequences),
    "convolution": convolution(nn.Conv2d, 6, 3),
    "convolution with few positions": convolution(nn.Conv2d, 40, 5),
    "convolution of vectors": convolution(nn.Conv1d, 6, 3, padding=2),
    "convolution of volumes": convolution(nn.Conv3d, 6, 3, stride=2),
    "grouped": convolution(nn.Conv2d, 8, 3, groups=2, padding=1),
    "grouped with few positions": convolution(nn.Conv2d, 80, 5, groups=2),
    "one group each": convolution(nn.Conv2d, 8, 3, groups=4),
    "dilated": convolution(nn.Conv2d, 6, 2, dilation=3, stride=2),
    "dilated with few positions": convolution(nn.Conv2d, 60, 3, dilation=2),
    "padded to the same size": convolution(nn.Conv2d, 6, 5, padding="same"),
    "padded around": convolution(nn.Conv2d, 6, 3, padding=1, padding_mode="circular"),
    "padded by mirrors": convolution(nn.Conv1d, 60, 5, padding=1, stride=3, padding_mode="reflect"),
    "convolution, twice": layer(lambda: CalledLayer(nn.Conv2d(4, 4, 3, padding=1), 2), pictures),
    "embedding": layer(lambda: nn.Embedding(CODES, 4), codes),
    "embedding with padding": layer(lambda: nn.Embedding(CODES, 4, padding_idx=0), codes),
    "LayerNorm": layer(lambda: nn.LayerNorm(8), sequences),
    "LayerNorm over two axes": layer(lambda: nn.LayerNorm([5, 8]), sequences),
    "LayerNorm, twice": layer(lambda: CalledLayer(nn.LayerNorm(8), 2), sequences),
    "RMSNorm": layer(lambda: nn.RMSNorm(8), sequences),
    "GroupNorm": layer(lambda: nn.GroupNorm(2, 4), pictures),
    "GroupNorm, twice": layer(lambda: CalledLayer(nn.GroupNorm(2, 4), 2), pictures),
    "GroupNorm with a frozen scale": layer(frozen_scale, pictures),
    "LayerNorm that serves for nothing": layer(lambda: UnusedLayer(nn.LayerNorm(8)), sequences),
    "InstanceNorm": layer(lambda: nn.InstanceNorm2d(4, affine=True), pictures),
    "positions": layer(lambda: AddedParameters((5, 8)), sequences),
    "positions with an axis of examples": layer(lambda: AddedParameters((1, 5, 8), (1, 1, 8)), sequences),
    "shifts": layer(lambda: AddedParameters((8,), (), (5, 1)), sequences),
    "BatchNorm in evaluation": layer(lambda: nn.BatchNorm2d(4).eval(), pictures),
}


def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(features), labels)


def labels_of(n: int) -> Tensor:
    return torch.arange(n) % CLASSES


def single_gradients(model: nn.Module, features: Tensor, labels: Tensor) -> list[list[Tensor]]:
    trained = [each for each in model.parameters() if each.requires_grad]
    return [
        [
            torch.zeros_like(parameter) if each is None else each
            for parameter, each in zip(
                trained,
                torch.autograd.grad(
                    loss(model, features[i : i + 1], labels[i : i + 1]), trained, allow_unused=True
                ),
                strict=True,
            )
        ]
        for i in range(len(labels))
    ]


def norms_of(single: list[list[Tensor]]) -> Tensor:
    norms: Tensor = flat_rows(single).norm(dim=1)
    return norms


def flat_rows(single: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.cat([each.flatten().double() for each in gradients]) for gradients in single])


def clipped_sum_of(single: list[list[Tensor]], norm: float) -> Tensor:
    """The sum of clipped gradients, flat and in double precision."""
    rows, norms = flat_rows(single), norms_of(single)
    return (rows * (norm / norms.clamp(min=norm)).unsqueeze(1)).sum(dim=0)


def add_clipped_to_zeros(
    model: nn.Module, features: Tensor, labels: Tensor, norm: float, parts: int = 1
) -> tuple[str, Tensor]:
    """How gradients are had, and their clipped sum."""
    trained = [each for each in model.parameters() if each.requires_grad]
    sums = [torch.zeros_like(each) for each in trained]
    with SingleGradients(model, trained, loss) as single:
        chosen = single.choose(features, labels)
        for x, y in zip(features.tensor_split(parts), labels.tensor_split(parts), strict=True):
            single.add_clipped(sums, x, y, norm)
    return chosen, torch.cat([each.flatten().double() for each in sums])


def require_close(found: Tensor, expected: Tensor) -> None:
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm())


@pytest.mark.parametrize("name", LAYERS)
def test_clipped_sums_layer_by_layer_are_those_of_single_examples(name: str) -> None:
    torch.manual_seed(0)
    model, make = LAYERS[name]()
    features, labels = make(7), labels_of(7)
    single = single_gradients(model, features, labels)
    for norm in (float(norms_of(single).median()), 1e-3, 1e6):
        chosen, found = add_clipped_to_zeros(model, features, labels, norm)
        assert chosen == LAYER_BY_LAYER
        require_close(found, clipped_sum_of(single, norm))


@st.composite
def networks(draw: st.DrawFn) -> nn.Module:
    """Convolutions, normalisations and linear layers one after the other."""
    torch.manual_seed(draw(st.integers(0, 1000)))
    channels, layers = 4, list[nn.Module]()
    for _ in range(draw(st.integers(0, 3))):
        groups = draw(st.sampled_from((1, 2)))
        wide = groups * draw(st.integers(1, 12))
        kernel, dilation = draw(st.sampled_from(((1, 1), (2, 2), (3, 1))))
        layers += [nn.Conv2d(channels, wide, kernel, padding=1, dilation=dilation, groups=groups)]
        layers += draw(st.sampled_from(([], [nn.GroupNorm(groups, wide)], [nn.Tanh()], [nn.MaxPool2d(2, 1)])))
        channels = 2 * wide
        layers.append(nn.Conv2d(wide, channels, 1, bias=draw(st.booleans())))
    layers.append(nn.Flatten() if draw(st.booleans()) else nn.AdaptiveAvgPool2d(draw(st.integers(1, 3))))
    body = nn.Sequential(*layers)
    return flat_network(body, pictures(1))


@settings(max_examples=25, deadline=None)
@given(networks(), st.integers(1, 9), st.integers(1, 3), st.floats(1e-3, 1e3))
def test_clipped_sums_of_any_network_and_batch_are_those_of_single_examples(
    model: nn.Module, n: int, parts: int, norm: float
) -> None:
    features, labels = pictures(n), labels_of(n)
    chosen, found = add_clipped_to_zeros(model, features, labels, norm, min(parts, n))
    assert chosen == LAYER_BY_LAYER
    require_close(found, clipped_sum_of(single_gradients(model, features, labels), norm))


class TiedTokensNetwork(nn.Module):
    """Codes are looked up and scored by one table."""

    def __init__(self, gate: float) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(CODES, 4), nn.Linear(4, CLASSES)
        self.register_buffer("gate", torch.tensor(gate))

    @override
    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x).mean(1)
        logits: Tensor = self.out(h + self.gate * (h @ self.table.weight.T) @ self.table.weight)
        return logits


class TransposedNetwork(nn.Module):
    """A layer whose inputs have time before examples."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(40, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.layer(x.transpose(0, 1)).transpose(0, 1).flatten(1))
        return logits


class DifferentLinear(nn.Linear):
    """A linear layer that computes something else."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.weight.sum()


OTHER_NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "a table that is used beside its layer": (lambda: TiedTokensNetwork(1.0), codes),
    "a table whose other use has no part yet": (lambda: TiedTokensNetwork(0.0), codes),
    "time before examples": (lambda: TransposedNetwork(nn.Linear(8, 8)), sequences),
    "time before examples in a normalisation": (lambda: TransposedNetwork(nn.LayerNorm(8)), sequences),
    "time before examples in a sum": (lambda: TransposedNetwork(AddedParameters((1, 8))), sequences),
    "parameters that meet": (
        lambda: flat_network(CombinedParameters(lambda x, one, other: x + (one + other)), sequences(1)),
        sequences,
    ),
    "a parameter that multiplies": (
        lambda: flat_network(CombinedParameters(lambda x, one, other: x * one + other), sequences(1)),
        sequences,
    ),
    "a parameter that is added twice over": (
        lambda: flat_network(
            CombinedParameters(lambda x, one, other: torch.add(x, other, alpha=2) + one), sequences(1)
        ),
        sequences,
    ),
    "a subclass": (lambda: flat_network(DifferentLinear(8, 4), sequences(1)), sequences),
}


@pytest.mark.parametrize("name", OTHER_NETWORKS)
def test_what_does_not_follow_from_layers_is_had_otherwise(name: str) -> None:
    torch.manual_seed(0)
    build, make = OTHER_NETWORKS[name]
    model, features, labels = build(), make(7), labels_of(7)
    chosen, found = add_clipped_to_zeros(model, features, labels, 0.1)
    assert chosen != LAYER_BY_LAYER
    require_close(found, clipped_sum_of(single_gradients(model, features, labels), 0.1))


class OpacusSequences(nn.Module):
    """Attention and a recurrent network of Opacus, which are made of linear layers."""

    def __init__(self) -> None:
        from opacus.layers import DPLSTM, DPMultiheadAttention

        super().__init__()
        self.attention: Any = DPMultiheadAttention(8, 2, batch_first=True)
        self.recurrent: Any = DPLSTM(8, 6, batch_first=True)
        self.out = nn.Linear(6, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x, x, x, need_weights=False)[0]
        logits: Tensor = self.out(self.recurrent(x)[0][:, -1])
        return logits


def test_layers_of_opacus_are_had_from_the_linear_layers_inside() -> None:
    torch.manual_seed(0)
    model, features, labels = OpacusSequences(), sequences(7), labels_of(7)
    chosen, found = add_clipped_to_zeros(model, features, labels, 0.1)
    assert chosen == LAYER_BY_LAYER
    require_close(found, clipped_sum_of(single_gradients(model, features, labels), 0.1))


def transformer_network() -> tuple[nn.Module, Tensor]:
    encoder = TokenEncoder(CODES, 5, TransformerConfig(width=8, heads=2, layers=2), averaged=True)
    return nn.Sequential(encoder, nn.Linear(8, CLASSES)), codes(7)


def compact_transformer() -> tuple[nn.Module, Tensor]:
    encoder = CompactTransformer((3, SIDE, SIDE))
    return nn.Sequential(encoder, nn.Linear(WIDTH, CLASSES)), torch.randn(7, 3, SIDE, SIDE)


@pytest.mark.parametrize("build", [transformer_network, compact_transformer])
def test_built_in_transformers_are_had_layer_by_layer(build: Callable[[], tuple[nn.Module, Tensor]]) -> None:
    torch.manual_seed(0)
    model, features = build()
    model, labels = model.eval(), labels_of(7)  # without dropout, which is drawn anew in each pass
    single = single_gradients(model, features, labels)
    norm = float(norms_of(single).median())
    chosen, found = add_clipped_to_zeros(model, features, labels, norm)
    assert chosen == LAYER_BY_LAYER
    require_close(found, clipped_sum_of(single, norm))


def test_an_example_without_a_finite_gradient_adds_nothing() -> None:
    torch.manual_seed(0)
    model, features, labels = sequential().eval(), pictures(7), labels_of(7)
    features[2], features[4] = float("nan"), 3e38
    others = torch.tensor([0, 1, 3, 5, 6])
    _, found = add_clipped_to_zeros(model, features, labels, 0.1)
    require_close(found, clipped_sum_of(single_gradients(model, features[others], labels[others]), 0.1))


def sequential() -> nn.Module:
    torch.manual_seed(0)
    width = 4 * SIDE * SIDE
    return nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(width, 256),
        nn.Tanh(),
        nn.Linear(256, CLASSES),
    )


def trained_model(steps: int = 3, batch: int = 20) -> nn.Module:
    model = sequential()
    model.train()
    torch.manual_seed(0)
    given = Examples(pictures(50), labels_of(50))
    plan = LocalTraining(lr=0.1, momentum=0.9, batch_size=batch, max_steps=steps, seed=3)
    privacy = ExamplePrivacy(Mechanism(0.5, batch / 50, steps), 0.5, np.random.default_rng(0))
    fit_privately(model, given, plan, privacy, loss)
    return model


def test_noise_and_dropout_are_those_of_gradients_made_by_opacus(monkeypatch: pytest.MonkeyPatch) -> None:
    layerwise = trained_model()
    monkeypatch.setattr(LayerwiseGradients, "applies", False)
    for found, expected in zip(layerwise.parameters(), trained_model().parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the numbers of the largest tensor that is made inside."""

    numbers = 0

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // each.itemsize)
        return found


def test_neither_trial_nor_step_makes_a_tensor_of_several_examples_gradients() -> None:
    model, features, labels = sequential(), pictures(20), labels_of(20)
    trained = list(model.parameters())
    sums = [torch.zeros_like(each) for each in trained]
    with LargestTensor() as largest, SingleGradients(model, trained, loss) as single:  # type: ignore[no-untyped-call]
        assert single.choose(features, labels) == LAYER_BY_LAYER
        single.add_clipped(sums, features, labels, 0.5)
    assert largest.numbers <= 256 * 4 * SIDE * SIDE


def test_a_network_whose_layers_come_to_be_called_otherwise_is_taken_example_by_example(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.turned, self.out = nn.Linear(8, 8), False, nn.Linear(40, CLASSES)

        @override
        def forward(self, x: Tensor) -> Tensor:
            h = self.layer(x.transpose(0, 1)).transpose(0, 1) if self.turned else self.layer(x)
            logits: Tensor = self.out(h.flatten(1))
            return logits

    torch.manual_seed(0)
    model, features, labels = Turning(), sequences(7), labels_of(7)
    trained = list(model.parameters())
    sums = [torch.zeros_like(each) for each in trained]
    with caplog.at_level(logging.INFO), SingleGradients(model, trained, loss) as single:
        assert single.choose(features, labels) == LAYER_BY_LAYER
        model.turned = True
        single.add_clipped(sums, features, labels, 0.1)
    found = torch.cat([each.flatten().double() for each in sums])
    require_close(found, clipped_sum_of(single_gradients(model, features, labels), 0.1))
    assert ONE_BY_ONE in caplog.text
