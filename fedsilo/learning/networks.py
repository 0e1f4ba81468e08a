"""The built-in networks of the catalogue, each as an encoder and the width of its feature.

Layers and initial weights follow the released code of the papers named; weights are drawn from PyTorch's
global generator, which `fedsilo.learning.models.build_model` seeds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsilo.learning.catalogue import LeNetConfig, MlpConfig, ResNet8Config, TorchvisionConfig

Shape = tuple[int, ...]


def mlp(shape: Shape, classes: int, config: MlpConfig) -> tuple[nn.Module, nn.Linear]:
    """Linear layers with ReLU, PyTorch's initial weights.

    `hidden: [200, 200]` is the 2NN of McMahan et al. (AISTATS 2017, section 3); `hidden: [1024, 1024, 128]`
    without bias has the layers of MAP's MLPNet.
    """
    layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
    width = math.prod(shape)
    for hidden in config.hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers), nn.Linear(width, classes, bias=config.bias)


def lenet(shape: Shape, classes: int, config: LeNetConfig) -> tuple[nn.Module, nn.Linear]:
    """MAP's LeNet: twice a 5x5 convolution of 16 channels, ReLU, max-pooling; feature 256 for 28x28.

    Initial weights as MAP: convolutions Kaiming normal by fan-out, classifier N(0, 0.01^2), biases 0.
    """
    encoder = nn.Sequential(
        nn.Conv2d(shape[0], 16, 5, padding=config.padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 5, padding=config.padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    shrink = 4 - 2 * config.padding
    classifier = nn.Linear(
        16 * math.prod(_after(_after(s, shrink), shrink) for s in shape[1:]), classes, config.bias
    )
    for layer in encoder:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            _zero(layer.bias)
    nn.init.normal_(classifier.weight, std=0.01)
    _zero(classifier.bias)
    return encoder, classifier


def simple_cnn(shape: Shape, classes: int, bias: bool) -> tuple[nn.Module, nn.Linear]:
    """simple-cnn of NIID-Bench and FedConcat, with PyTorch's initial weights: feature 84.

    FedConcat's released encoder also carries a linear layer that nothing uses; it is left out.
    """
    flat = 16 * math.prod(_after(_after(side, 4), 4) for side in shape[1:])
    encoder = nn.Sequential(
        nn.Conv2d(shape[0], 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return encoder, nn.Linear(84, classes, bias=bias)


def resnet8(shape: Shape, classes: int, config: ResNet8Config) -> tuple[nn.Module, nn.Linear]:
    """CReFF's ResNet-8: 3x3 stem and one residual block at each of three widths; feature 256 at width 64.

    Initial weights as CReFF: convolutions N(0, 2 / (k * k * channels out)), BatchNorm 1 and 0.
    """
    width = config.width
    encoder = nn.Sequential(
        _conv(shape[0], width, 3),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        ResidualBlock(width, width, stride=1),
        ResidualBlock(width, 2 * width, stride=2),
        ResidualBlock(2 * width, 4 * width, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return encoder, nn.Linear(4 * width, classes, bias=config.bias)


def torchvision_resnet(
    name: str, shape: Shape, classes: int, config: TorchvisionConfig
) -> tuple[nn.Module, nn.Linear]:
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

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels in, h, w) -> (n, channels out, h / stride, w / stride)."""
        residual = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(residual + self.shortcut(x))


def _conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.normal_(conv.weight, std=math.sqrt(2 / (kernel * kernel * channels_out)))
    return conv


def _after(side: int, shrink: int) -> int:
    """Side of an image after a convolution that takes `shrink` off it and a pooling that halves it."""
    return (side - shrink) // 2


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        with torch.no_grad():
            bias.zero_()
