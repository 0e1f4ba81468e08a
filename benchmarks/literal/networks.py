"""Two networks that are no architecture of a job, and tell what the architecture has to do with a result."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import nn

from fedsilo.learning.models import Model


def linear(input_shape: Sequence[int], classes: int) -> Model:
    """Logistic regression, whose loss is convex."""
    return Model(nn.Flatten(), nn.Linear(prod(input_shape), classes))


def grouped(input_shape: Sequence[int], classes: int) -> Model:
    """FedBR's CNN for rotated MNIST at a quarter of its width and half of its resolution, for a CPU.

    Four 3x3 convolutions, each with ReLU and then GroupNorm of 8 groups, and a mean over the image.
    """
    layers, before = list[nn.Module](), input_shape[0]
    for width, stride in ((16, 2), (32, 2), (32, 1), (32, 1)):
        layers += [nn.Conv2d(before, width, 3, stride, padding=1), nn.ReLU(), nn.GroupNorm(8, width)]
        before = width
    encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Model(encoder, nn.Linear(before, classes))
