"""Networks as a job's own package would bring them, good and bad."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn
from typing_extensions import override

Shape = tuple[int, ...]


def good_network(input_shape: Shape, classes: int, width: int = 7) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0], width), classifier=nn.Linear(width, classes))


def no_encoder(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], classes)


def wrong_classes(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0], 3), classifier=nn.Linear(3, classes + 1))


def wrong_width(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0], 3), classifier=nn.Linear(4, classes))


def wrong_input(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0] + 1, 3), classifier=nn.Linear(3, classes))


def failing(input_shape: Shape, classes: int) -> SimpleNamespace:
    raise RuntimeError(f"no weights for {classes} classes of {input_shape}")


def leaving(input_shape: Shape, classes: int) -> SimpleNamespace:
    raise SystemExit(0)


class Leaving(nn.Module):
    """An encoder that ends the process where it is called."""

    @override
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        raise SystemExit(0)


def leaving_later(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=Leaving(), classifier=nn.Linear(3, classes))


def bfloat16(input_shape: Shape, classes: int) -> SimpleNamespace:
    encoder = nn.Linear(input_shape[0], 3, dtype=torch.bfloat16)
    return SimpleNamespace(encoder=encoder, classifier=nn.Linear(3, classes))


def huge_network(input_shape: Shape, classes: int) -> SimpleNamespace:
    with torch.device("meta"):
        return SimpleNamespace(
            encoder=nn.Linear(input_shape[0], 1 << 38), classifier=nn.Linear(1 << 38, classes)
        )


def wide_network(input_shape: tuple[int, ...], classes: int, width: int) -> nn.Module:
    """A network as wide as its configuration says."""
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.Linear(width, classes))


class Causal(nn.Module):
    """Attention of each position to itself and those before it, with a mask in the state as many write it."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x.unsqueeze(-1))
        weights = (h @ h.transpose(1, 2) + self.get_buffer("mask")).softmax(-1)
        means: torch.Tensor = (weights @ h).mean(1)
        return means


def causal(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=Causal(input_shape[0]), classifier=nn.Linear(4, classes))


class Ranging(nn.Module):
    """Notes the least value that it saw, as observers for quantisation do: infinity before the first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.tensor(float("inf")))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            least = self.get_buffer("least")
            least.copy_(torch.minimum(least, x.min().detach()))
        return x


def ranging(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(Ranging(), nn.Linear(input_shape[0], classes))


def undefined_weight(input_shape: Shape, classes: int) -> nn.Module:
    layer = nn.Linear(input_shape[0], classes)
    nn.init.constant_(layer.bias, float("nan"))
    return layer
