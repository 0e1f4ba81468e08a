"""Networks of jobs whose models are exported: one that needs its own package only until then, and some that do not
survive it."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from typing_extensions import override

Shape = tuple[int, ...]


def network(input_shape: Shape, classes: int) -> SimpleNamespace:
    encoder = nn.Sequential(
        nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], 7), nn.BatchNorm1d(7), nn.ReLU()
    )
    return SimpleNamespace(encoder=encoder, classifier=nn.Linear(7, classes))


class BatchSize(nn.Module):
    """What it gives for an example depends on how many others there are."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return flat if len(x) > 1 else 2 * flat


class Data(nn.Module):
    """Which operations there are depends on the examples' values."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return torch.relu(flat) if flat.sum() > 0 else flat


def by_batch_size(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(
        encoder=BatchSize(), classifier=nn.Linear(input_shape[1] * input_shape[2], classes)
    )


def by_data(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=Data(), classifier=nn.Linear(input_shape[1] * input_shape[2], classes))
