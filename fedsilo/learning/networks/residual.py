"""Residual networks (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.learning.catalogue import ArchitectureConfig, ResNet8Config
from fedsilo.learning.networks.layers import Parts, Shape, as_map


def resnet8(shape: Shape, classes: int, config: ResNet8Config) -> Parts:
    """The network ResNet-8 of CReFF: 3x3 stem and one residual block at each of three widths; feature 256 at width 64.

    Initial weights as CReFF: convolutions N(0, 2 / (k * k * channels out)), BatchNorm 1 and 0.
    """
    widths = (config.width, 2 * config.width, 4 * config.width)
    return _residual(shape[0], widths, 1), nn.Linear(widths[-1], classes, bias=config.bias)


def resnet20(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """MAP's ResNet20 for CIFAR, 6 n + 2 layers with n = 3 and 1x1 convolutions as shortcuts; feature 64."""
    return as_map(_residual(shape[0], (16, 32, 64), 3), nn.Linear(64, classes, bias=config.bias))


def resnet56(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """MAP's ResNet56 for CIFAR, the same with n = 9."""
    return as_map(_residual(shape[0], (16, 32, 64), 9), nn.Linear(64, classes, bias=config.bias))


def _residual(channels: int, widths: Sequence[int], blocks: int) -> nn.Sequential:
    """3x3 stem, at each width so many blocks, the first of all but the first width with stride 2; global average."""
    layers: list[nn.Module] = [_conv(channels, widths[0], 3), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    before = widths[0]
    for place, width in enumerate(widths):
        for block in range(blocks):
            layers.append(ResidualBlock(before, width, stride=2 if place and not block else 1))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def torchvision_resnet(name: str, shape: Shape, classes: int, config: Any) -> Parts:
    """A torchvision ResNet without pretrained weights, split before its last layer.

    The stem is the published one, or for images of CIFAR's size a 3x3 convolution of stride 1, no pooling.
    """
    # Only here: importing torchvision takes a second, which every other network would wait for.
    import torchvision

    network = torchvision.models.get_model(name, weights=None, num_classes=classes)
    if config.stem == "cifar":
        network.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    elif shape[0] != 3:
        network.conv1 = nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    classifier = nn.Linear(network.fc.in_features, classes, bias=config.bias)
    network.fc = nn.Identity()
    return network, classifier


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut (He et al., CVPR 2016, section 3.2)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, channels_out, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = _conv(channels_out, channels_out, 3)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if channels_in != channels_out or stride != 1:
            self.shortcut = nn.Sequential(
                _conv(channels_in, channels_out, 1, stride), nn.BatchNorm2d(channels_out)
            )

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, channels in, h, w) -> (n, channels out, h / stride, w / stride)."""
        residual = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(residual + self.shortcut(x))


def _conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.normal_(conv.weight, std=math.sqrt(2 / (kernel * kernel * channels_out)))
    return conv
