"""Fully connected networks over the flattened input."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from fedsilo.learning.catalogue import ArchitectureConfig, MlpConfig
from fedsilo.learning.networks.layers import Parts, Shape, as_map


def mlp(shape: Shape, classes: int, config: MlpConfig) -> Parts:
    """Linear layers with ReLU, PyTorch's initial weights.

    `hidden: [200, 200]` is the 2NN of McMahan et al. (AISTATS 2017, section 3).
    """
    return _layers(shape, classes, config.hidden, config.bias)


def mlpnet(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """The network MLPNet of MAP: 1024, 1024 and 128 units with ReLU, as released (the paper's text says two layers of
    512).
    """
    return as_map(*_layers(shape, classes, (1024, 1024, 128), config.bias))


def _layers(shape: Shape, classes: int, widths: Sequence[int], bias: bool) -> Parts:
    layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    width = math.prod(shape)
    for hidden in widths:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers), nn.Linear(width, classes, bias=bias)
