"""What several families share."""

from __future__ import annotations

import math

from torch import nn

Shape = tuple[int, ...]
Parts = tuple[nn.Module, nn.Linear]
"""Encoder, and the classifier on its feature."""


def as_map(encoder: nn.Module, classifier: nn.Linear) -> Parts:
    """Draw MAP's initial weights for encoder and classifier: convolutions Kaiming normal by fan-out, biases 0, linear
    layers N(0, 0.01^2); BatchNorm 1 and 0, as PyTorch has it.
    """
    for layer in (*encoder.modules(), classifier):
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return encoder, classifier


def conv_relu(
    channels_in: int, channels_out: int, kernel: int, *, stride: int = 1, padding: int = 0
) -> list[nn.Module]:
    """A convolution with bias, and ReLU."""
    return [nn.Conv2d(channels_in, channels_out, kernel, stride, padding), nn.ReLU()]


def pooled_positions(shape: Shape, times: int) -> int:
    """Number of places that are left of an image after so many poolings that halve its sides."""
    return math.prod(side >> times for side in shape[1:])


def conv_pool_side(side: int, shrink: int) -> int:
    """Side of an image after a convolution that takes `shrink` off it and a pooling that halves it."""
    return (side - shrink) // 2
