"""VGG networks (Simonyan, Zisserman, ICLR 2015) in the sizes of the papers: 3x3 convolutions, max-pooling between."""

from __future__ import annotations

from torch import nn

from fedsilo.learning.catalogue import ArchitectureConfig
from fedsilo.learning.networks.layers import Parts, Shape, as_map, conv_relu, pooled_positions

POOL = 0
"""A max-pooling in a list of widths."""

VGG8 = (64, POOL, 128, POOL, 256, POOL, 512, POOL, 512, POOL)
VGG11 = (64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL)


def vgg8(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """The network VGG8 of MAP; feature 512 for 32x32."""
    return _map_vgg(VGG8, shape, classes, config, batch_norm=False)


def vgg8_bn(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """The network VGG8-BN of MAP, with BatchNorm after every convolution."""
    return _map_vgg(VGG8, shape, classes, config, batch_norm=True)


def vgg11(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """MAP's VGG11, without BatchNorm; feature 512 for 32x32."""
    return _map_vgg(VGG11, shape, classes, config, batch_norm=False)


def vgg9(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """FedConcat's VGG-9 with dropout, PyTorch's initial weights: six convolutions, two linear layers, feature 512."""
    encoder = nn.Sequential(
        *conv_relu(shape[0], 32, 3, padding=1),
        *conv_relu(32, 64, 3, padding=1),
        nn.MaxPool2d(2),
        *conv_relu(64, 128, 3, padding=1),
        *conv_relu(128, 128, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.05),
        *conv_relu(128, 256, 3, padding=1),
        *conv_relu(256, 256, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(256 * pooled_positions(shape, 3), 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Dropout(0.1),
    )
    return encoder, nn.Linear(512, classes, bias=config.bias)


def torchvision_vgg11(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """The network VGG11 of FedBR: torchvision's convolutions and their initial weights, averaged over the image;
    feature 512.
    """
    # Only here: importing torchvision takes a second, which every other network would wait for.
    import torchvision

    features = torchvision.models.vgg11(weights=None).features
    if shape[0] != 3:
        features[0] = nn.Conv2d(shape[0], 64, 3, padding=1)
        nn.init.kaiming_normal_(features[0].weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(features[0].bias)
    encoder = nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return encoder, nn.Linear(512, classes, bias=config.bias)


def _map_vgg(
    widths: tuple[int, ...], shape: Shape, classes: int, config: ArchitectureConfig, batch_norm: bool
) -> Parts:
    encoder = nn.Sequential(*_convolutions(widths, shape[0], batch_norm), nn.Flatten())
    return as_map(encoder, nn.Linear(512 * pooled_positions(shape, 5), classes, bias=config.bias))


def _convolutions(widths: tuple[int, ...], channels: int, batch_norm: bool = False) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in widths:
        if width == POOL:
            layers.append(nn.MaxPool2d(2))
            continue
        norm = [nn.BatchNorm2d(width)] if batch_norm else []
        layers += [nn.Conv2d(channels, width, 3, padding=1), *norm, nn.ReLU()]
        channels = width
    return layers
