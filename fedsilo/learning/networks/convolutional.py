"""Small convolutional networks that a job can name as its architecture."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.learning.catalogue import ArchitectureConfig, LeNetConfig
from fedsilo.learning.networks.layers import Parts, Shape, as_map, conv_pool_side, conv_relu, pooled_positions


def lenet(shape: Shape, classes: int, config: LeNetConfig) -> Parts:
    """The network LeNet of MAP: twice a 5x5 convolution of 16 channels, ReLU, max-pooling; feature 256 for 28x28."""
    padding = config.padding
    encoder = nn.Sequential(
        *conv_relu(shape[0], 16, 5, padding=padding),
        nn.MaxPool2d(2),
        *conv_relu(16, 16, 5, padding=padding),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    shrink = 4 - 2 * padding
    places = math.prod(conv_pool_side(conv_pool_side(side, shrink), shrink) for side in shape[1:])
    return as_map(encoder, nn.Linear(16 * places, classes, config.bias))


def tfcnn(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """The network TFCNN of MAP: 3x3 convolutions of 32, 64 and 64 channels, each pooled; feature 1024 for 32x32."""
    encoder = nn.Sequential(
        *conv_relu(shape[0], 32, 3, padding=1),
        nn.MaxPool2d(2),
        *conv_relu(32, 64, 3, padding=1),
        nn.MaxPool2d(2),
        *conv_relu(64, 64, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    return as_map(encoder, nn.Linear(64 * pooled_positions(shape, 3), classes, bias=config.bias))


def femnist_cnn(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """MAP's network for FEMNIST: 5x5 convolutions of 32 and 64 channels, averaged over a grid of 4x4; feature 1024."""
    encoder = nn.Sequential(
        *conv_relu(shape[0], 32, 5, padding=2),
        nn.MaxPool2d(2),
        *conv_relu(32, 64, 5, padding=2),
        GridMean(4),
        nn.Flatten(),
    )
    return as_map(encoder, nn.Linear(64 * 16, classes, bias=config.bias))


def simple_cnn(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """simple-cnn of NIID-Bench and FedConcat, with PyTorch's initial weights: feature 84.

    FedConcat's released encoder also carries a linear layer that nothing uses; it is left out.
    """
    flat = 16 * math.prod(conv_pool_side(conv_pool_side(side, 4), 4) for side in shape[1:])
    encoder = nn.Sequential(
        *conv_relu(shape[0], 6, 5),
        nn.MaxPool2d(2),
        *conv_relu(6, 16, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return encoder, nn.Linear(84, classes, bias=config.bias)


def mnist_cnn(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """FedBR's network for rotated MNIST, PyTorch's initial weights: four 3x3 convolutions, feature 128.

    GroupNorm of 8 groups comes after each ReLU, as released.
    """
    channels, strides = (shape[0], 64, 128, 128, 128), (1, 2, 1, 1)
    layers: list[nn.Module] = []
    for before, width, stride in zip(channels, channels[1:], strides, strict=False):
        layers += [*conv_relu(before, width, 3, stride=stride, padding=1), nn.GroupNorm(8, width)]
    encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return encoder, nn.Linear(128, classes, bias=config.bias)


class GridMean(nn.Module):
    """Means over a grid of overlapping cells, as `AdaptiveAvgPool2d`, whose gradient is not deterministic on a GPU."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) -> (n, channels, size, size)."""
        rows, columns = (self._means(side, x) for side in x.shape[-2:])
        return rows @ x @ columns.T

    def _means(self, side: int, like: Tensor) -> Tensor:
        """Weights of the cells' means, (size, side): each row has those of one cell, from floor(i side / size) to its
        ceiling.
        """
        means = torch.zeros(self.size, side, dtype=like.dtype, device=like.device)
        for cell in range(self.size):
            first, last = cell * side // self.size, -(-(cell + 1) * side // self.size)
            means[cell, first:last] = 1 / (last - first)
        return means
