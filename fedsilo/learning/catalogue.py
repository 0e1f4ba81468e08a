"""Catalogue of built-in architectures: their names, their configuration and the inputs they take.

Torch-free, so that a job's model can be checked where nothing is computed; `fedsilo.learning.networks` builds
what is listed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedsilo.api.common import invalid_value
from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec, ModelSpec
from fedsilo.api.messages import closest, faults_of
from fedsilo.api.python_reference import PYTHON, python_reference
from fedsilo.tasks.interface import OWN_TASK_NAME
from fedsilo.tasks.registry import TASKS, kind_of

Finding = tuple[str, object, str, str]
"""A fault as (path, value, problem, remedy)."""

TORCHVISION = "torchvision:"

Width = Annotated[int, Field(ge=1, le=65536)]


class ArchitectureConfig(BaseModel):
    """What every built-in architecture has in `spec.model.config`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    bias: bool = Field(True, description="whether the classifier has a bias; MAP's networks have none")
    projection: Width | None = Field(
        None, description="width of MOON's projection head on the feature, 256 in its paper; none when null"
    )


class MapConfig(ArchitectureConfig):
    """Configuration of those of MAP's networks that are faithful by default: the classifier has no bias."""

    bias: bool = Field(False, description="whether the classifier has a bias")


class MlpConfig(ArchitectureConfig):
    """Configuration of the architecture `mlp`."""

    hidden: list[Width] = Field(
        [200, 200],
        max_length=16,
        description="widths of the hidden layers; none for a linear model, such as logistic regression",
    )


class LeNetConfig(ArchitectureConfig):
    """Configuration of the architecture `lenet`."""

    padding: Literal[0, 2] = Field(
        0, description="zero padding of both convolutions; 2 for images below 16x16"
    )


class ResNet8Config(ArchitectureConfig):
    """Configuration of the architecture `resnet8`."""

    width: int = Field(
        64, ge=1, le=1024, description="channels of the first stage; the next have two and four times"
    )


class UNetConfig(BaseModel):
    """Configuration of the architecture `unet`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    width: int = Field(
        16, ge=1, le=1024, description="channels at full resolution; each level below has twice"
    )
    levels: int = Field(2, ge=1, le=5, description="times that the sides are halved")


class TransformerConfig(BaseModel):
    """Configuration of the architecture `transformer`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    width: int = Field(64, ge=2, le=65536, description="numbers for each token, a multiple of heads")
    layers: int = Field(2, ge=1, le=128, description="blocks of attention and perceptron")
    heads: int = Field(2, ge=1, le=1024, description="attention heads")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.width % self.heads:
            raise invalid_value(
                "is no multiple of heads", f"use a multiple of {self.heads}", "width", value=self.width
            )
        return self


class TorchvisionConfig(ArchitectureConfig):
    """Configuration of the torchvision ResNets."""

    stem: Literal["imagenet", "cifar"] = Field(
        "imagenet", description="imagenet: 7x7 stride 2 and max-pooling; cifar: 3x3 stride 1 and none"
    )


@dataclass(frozen=True)
class Architecture:
    """One entry of the catalogue.

    :param smallest_side: for networks over images of shape [channels, height, width], the least height and
        width for a configuration; None where any shape will do.
    :param tasks: learning tasks that its outputs fit; those of one's own may use any.
    :param batch_norm: whether it normalises over the batch.
    """

    name: str
    summary: str
    config: type[BaseModel]
    smallest_side: Callable[[Any], int] | None = None
    tasks: frozenset[str] = frozenset(("classification", "multilabel", "regression"))
    batch_norm: bool = False


def _lenet_side(config: LeNetConfig) -> int:
    # Without padding, (((16 - 4) / 2) - 4) / 2 = 1; with it, each of the two poolings needs two rows.
    return 16 if config.padding == 0 else 4


RESNETS = {
    **{f"resnet{depth}": f"ResNet-{depth}" for depth in (18, 34, 50, 101, 152)},
    "resnext50_32x4d": "ResNeXt-50 32x4d",
    "resnext101_32x8d": "ResNeXt-101 32x8d",
    "resnext101_64x4d": "ResNeXt-101 64x4d",
    "wide_resnet50_2": "Wide ResNet-50-2",
    "wide_resnet101_2": "Wide ResNet-101-2",
}

ARCHITECTURES: dict[str, Architecture] = {
    entry.name: entry
    for entry in (
        Architecture("mlp", "fully connected layers with ReLU over the flattened input", MlpConfig),
        Architecture("lenet", "MAP's LeNet: two 5x5 convolutions of 16 channels", LeNetConfig, _lenet_side),
        Architecture(
            "simple_cnn",
            "NIID-Bench's and FedConcat's simple-cnn: two 5x5 convolutions, two linear layers, 84 features",
            ArchitectureConfig,
            lambda _: 16,
        ),
        Architecture("mlpnet", "MAP's MLPNet: 1024, 1024 and 128 units over the flattened input", MapConfig),
        Architecture("tfcnn", "MAP's TFCNN: three 3x3 convolutions, 1024 features", MapConfig, lambda _: 8),
        Architecture(
            "femnist_cnn",
            "MAP's network for FEMNIST: two 5x5 convolutions, 1024 features",
            MapConfig,
            lambda _: 2,
        ),
        Architecture(
            "mnist_cnn",
            "FedBR's network for rotated MNIST: four 3x3 convolutions with GroupNorm",
            ArchitectureConfig,
            lambda _: 4,
        ),
        Architecture("vgg8", "MAP's VGG8: five convolutions", MapConfig, lambda _: 32),
        Architecture(
            "vgg8_bn",
            "MAP's VGG8-BN: five convolutions with BatchNorm",
            MapConfig,
            lambda _: 32,
            batch_norm=True,
        ),
        Architecture(
            "vgg9",
            "FedConcat's VGG-9: six convolutions, two linear layers, dropout",
            ArchitectureConfig,
            lambda _: 8,
        ),
        Architecture("vgg11", "MAP's VGG11: eight convolutions", MapConfig, lambda _: 32),
        Architecture(
            TORCHVISION + "vgg11",
            "FedBR's VGG11: torchvision's convolutions, averaged over the image",
            ArchitectureConfig,
            lambda _: 32,
        ),
        Architecture(
            "resnet8", "CReFF's ResNet-8: three residual blocks", ResNet8Config, lambda _: 8, batch_norm=True
        ),
        Architecture("resnet20", "MAP's ResNet20 for CIFAR", MapConfig, lambda _: 8, batch_norm=True),
        Architecture("resnet56", "MAP's ResNet56 for CIFAR", MapConfig, lambda _: 8, batch_norm=True),
        Architecture(
            "cct",
            "FedBR's compact convolutional transformer: seven layers, 256 features",
            ArchitectureConfig,
            lambda _: 4,
        ),
        Architecture(
            "unet",
            "U-Net with GroupNorm: classes of pixels, from the features of several resolutions",
            UNetConfig,
            lambda config: 2**config.levels,
            frozenset({"segmentation"}),
        ),
        Architecture(
            "transformer",
            "transformer over tokens: causal for the next token, averaged over the sequence for a class",
            TransformerConfig,
            tasks=frozenset({"language"}),
        ),
        *(
            Architecture(
                TORCHVISION + name,
                f"torchvision's {title}, random initial weights",
                TorchvisionConfig,
                lambda config: 32 if config.stem == "imagenet" else 8,
                batch_norm=True,
            )
            for name, title in RESNETS.items()
        ),
    )
}


def check_model(model: ModelSpec, data: DataSpec, task: LearningTaskSpec | None = None) -> list[Finding]:
    """Faults of the job's model: unknown name, wrong configuration, inputs that the architecture cannot take.

    A factory in Python is checked by form only; its package need not be installed where a job is written.
    """
    if model.name.startswith(PYTHON):
        return _check_factory(model.name)
    architecture = ARCHITECTURES.get(model.name)
    if architecture is None:
        known = [*ARCHITECTURES, "python:package.module:factory"]
        return [("spec.model.name", model.name, "is not a known model", closest(model.name, known))]
    try:
        config = architecture.config.model_validate(model.config)
    except ValidationError as invalid:
        where = ("spec", "model", "config")
        return [
            (fault.path, fault.value, fault.problem, fault.remedy)
            for fault in faults_of(invalid, architecture.config, file="", document="", under=where)
        ]
    return _check_task(architecture, task) or _check_shape(architecture, config, data.input_shape)


def _check_task(architecture: Architecture, task: LearningTaskSpec | None) -> list[Finding]:
    kind = kind_of(task)
    if kind == OWN_TASK_NAME or kind not in TASKS or kind in architecture.tasks:
        return []
    able = [entry.name for entry in ARCHITECTURES.values() if kind in entry.tasks]
    remedy = (
        f"use {' or '.join(able)}, or a python: factory"
        if len(able) < 3
        else f"use another, such as {able[0]}"
    )
    return [("spec.model.name", architecture.name, f"does not give what {kind} learns", remedy)]


def _check_factory(name: str) -> list[Finding]:
    if python_reference(name) is not None:
        return []
    remedy = "write python:package.module:factory, for example python:hospital.networks:make"
    return [("spec.model.name", name, "does not name a Python factory", remedy)]


def _check_shape(architecture: Architecture, config: BaseModel, shape: tuple[int, ...]) -> list[Finding]:
    if architecture.smallest_side is None:
        return []
    path, value = "spec.data.inputShape", list(shape)
    if len(shape) != 3:
        problem = f"is not the shape of an image, which {architecture.name} needs"
        return [(path, value, problem, "give [channels, height, width], or use the model mlp")]
    least = architecture.smallest_side(config)
    if min(shape[1:]) >= least:
        return []
    problem = f"is too small for {architecture.name}, whose images are at least {least}x{least}"
    return [(path, value, problem, _small_image_remedy(architecture, config, min(shape[1:])))]


def _small_image_remedy(architecture: Architecture, config: BaseModel, side: int) -> str:
    """The change of configuration with which the images would do, if there is one."""
    options: dict[str, object] = {"padding": 2, "stem": "cifar"}
    for field, setting in options.items():
        if field in type(config).model_fields and architecture.smallest_side is not None:
            changed = config.model_copy(update={field: setting})
            if architecture.smallest_side(changed) <= side:
                return f"set spec.model.config.{field}: {setting}, or use larger images"
    return "use larger images or the model mlp"
