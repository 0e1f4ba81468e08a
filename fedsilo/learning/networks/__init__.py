"""The built-in networks of the catalogue, most as an encoder and the linear classifier on its feature.

Layers and initial weights follow the released code of the papers named; weights are drawn from PyTorch's
global generator, which `fedsilo.learning.models.build_model` seeds. A file per family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fedsilo.learning.catalogue import TORCHVISION, ArchitectureConfig
from fedsilo.learning.networks import cct, convolutional, perceptrons, residual, transformer, unet, vgg
from fedsilo.learning.networks.layers import Parts, Shape
from fedsilo.tasks.interface import LearningTask

Builder = Callable[[Shape, int, Any], Parts]
"""(input shape, classes, configuration) -> encoder and classifier."""

BUILDERS: Mapping[str, Builder] = {
    "mlp": perceptrons.mlp,
    "mlpnet": perceptrons.mlpnet,
    "lenet": convolutional.lenet,
    "tfcnn": convolutional.tfcnn,
    "femnist_cnn": convolutional.femnist_cnn,
    "simple_cnn": convolutional.simple_cnn,
    "mnist_cnn": convolutional.mnist_cnn,
    "vgg8": vgg.vgg8,
    "vgg8_bn": vgg.vgg8_bn,
    "vgg9": vgg.vgg9,
    "vgg11": vgg.vgg11,
    TORCHVISION + "vgg11": vgg.torchvision_vgg11,
    "resnet8": residual.resnet8,
    "resnet20": residual.resnet20,
    "resnet56": residual.resnet56,
    "cct": cct.cct,
}

OF_TASKS: Mapping[str, Callable[[LearningTask, Any], Parts | nn.Module]] = {
    "unet": unet.unet,
    "transformer": transformer.transformer,
}
"""Networks that depend on more of the task than the number of its outputs."""


def build(name: str, task: LearningTask, config: Any) -> Parts | nn.Module:
    """Encoder and classifier of an architecture of the catalogue, with the projection head that it may have; a module
    where it has no such parts."""
    if name in OF_TASKS:
        return OF_TASKS[name](task, config)
    return _parts(name, task.data.input_shape, task.outputs, config)


def _parts(name: str, shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    if name in BUILDERS:
        encoder, classifier = BUILDERS[name](shape, classes, config)
    else:
        encoder, classifier = residual.torchvision_resnet(
            name.removeprefix(TORCHVISION), shape, classes, config
        )
    if config.projection is None:
        return encoder, classifier
    width = classifier.in_features
    head = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, config.projection))
    return nn.Sequential(encoder, *head), nn.Linear(config.projection, classes, bias=config.bias)
