"""What a learning task is: `spec.task` of a job, which says what its model learns.

A subclass is the declaration, with the settings that a job may give it; its instance is the task of one job. Importing
it needs no torch, so that jobs are checked where nothing is computed; what computes imports it inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from fedsilo.api.common import Fields
from fedsilo.api.data import DataSpec
from fedsilo.api.faults import Finding
from fedsilo.errors import DataInvalid, quoted_value

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]

Answers = Literal["class", "labels", "numbers", "pixels", "tokens"]
"""What a model says of an example: its class, its labels, numbers, the class of each pixel, or each next token."""

OWN_TASK_NAME = "own"
"""What methods call a task of the job's own package, `python:module:Task`."""

EVERY_TASK: frozenset[str] = frozenset(
    ("classification", "multilabel", "regression", "segmentation", "language", OWN_TASK_NAME)
)
"""What a method declares that has a meaning for whatever has a loss."""


class TaskConfig(Fields):
    """Base of a task's `spec.task.config`: camelCase in YAML, unknown fields refused."""

    model_config = ConfigDict(strict=True)


class WeightedConfig(TaskConfig):
    """Settings of tasks whose loss can weigh classes."""

    class_weights: Literal["balanced"] | None = Field(
        None,
        description="balanced: in the training loss a class weighs the more the rarer it is among the silo's own "
        "training examples; all alike when null",
    )


class LearningTask(ABC):
    """Base of all learning tasks.

    :cvar name: of `spec.task.name`; one's own need none.
    :cvar summary: what is learned, a phrase for people.
    :cvar target: what the target of one example is, a phrase for people.
    :cvar per_class: what "per class" means, a phrase for people; None where classes have no meaning.
    :cvar metrics: default metrics beside the loss, the main one first. Each is a mean over examples, so that the mean
        of the silos' by examples is that of the pooled examples.
    :cvar Config: what `spec.task.config` may hold; annotate `config` with the same class.
    """

    name: ClassVar[str] = OWN_TASK_NAME
    summary: ClassVar[str]
    target: ClassVar[str]
    per_class: ClassVar[str | None] = None
    metrics: ClassVar[tuple[str, ...]] = ()
    Config: ClassVar[type[TaskConfig]] = TaskConfig

    data: DataSpec
    config: TaskConfig

    def __init__(self, data: DataSpec, config: TaskConfig) -> None:
        self.data = data
        self.config = config

    def check(self) -> list[Finding]:
        """Faults of the job's data that concern the task."""
        return []

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers that the model gives for an example, a pixel or a token: what a factory gets as `classes`."""

    @property
    def outputs_field(self) -> str:
        """Where the job says so."""
        return "spec.data.classes"

    @property
    def output_shape(self) -> Shape:
        """Shape of what the model gives for one example."""
        return (self.outputs,)

    @property
    def single_label(self) -> bool:
        """Whether an example is of exactly one class: what partitions by label and stratified splits go by."""
        return False

    @property
    def answers(self) -> Answers | None:
        """By what metrics it can be scored; None, where only by the job's own."""
        return None

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens, where inputs are tokens and not measurements."""
        return None

    @property
    def weighs_classes(self) -> bool:
        """Whether the job has the loss weigh classes."""
        return isinstance(self.config, WeightedConfig) and self.config.class_weights is not None

    def pairs(self, features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the model is given and what it is to say, from what a loader found: the same, unless the task says."""
        return features, targets

    @property
    def standardises_targets(self) -> bool:
        """Whether the job's networks learn targets less their mean, divided by their deviation, and give raw ones."""
        return False

    def strata(self, targets: np.ndarray) -> np.ndarray:
        """What partitions by class and stratified splits go by, (n,), which is nothing without a single class."""
        return targets if self.single_label else np.zeros(len(targets), np.int64)

    @abstractmethod
    def targets(self, values: np.ndarray) -> np.ndarray:
        """The targets of all examples, checked: from what a loader found to what the loss takes, int64 or float32;
        float64 where they are standardised first.

        :param values: numbers, one entry of the first dimension for each example.
        :raises DataInvalid: naming the first offending item, its value and the remedy.
        """

    def class_weights(self, targets: Tensor) -> Tensor | None:
        """Weights of the classes from the silo's own training targets; None where the loss has none."""
        return None

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Mean loss of a batch, differentiable.

        :param weights: those of `class_weights`.
        """

    def divisor(self, targets: Tensor, weights: Tensor | None = None) -> Tensor | None:
        """What `loss` divides its sum over a batch by; None where that is the number of examples.

        The gradient of a batch that is computed in parts is exact by it: each part counts by its own divisor.
        """
        return None

    @abstractmethod
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        """Scores of each example: the unweighted `loss` and each of `metrics`, (n,)."""

    def predictions(self, outputs: Tensor) -> Tensor:
        """What metrics take beside the targets: probabilities where there are classes, values otherwise."""
        return outputs


def paired_targets(values: np.ndarray, shape: Shape, what: str) -> np.ndarray:
    """The targets where every example has one of this shape; a single number may stand for a list of one.

    :param what: what a target is, for the message.
    :raises DataInvalid: another shape.
    """
    if shape == (1,) and values.ndim == 1:
        values = values[:, np.newaxis]
    if values.shape[1:] != shape:
        raise DataInvalid(
            f"targets have shape {list(values.shape[1:])} for each example; give {what}, shape {list(shape)}"
        )
    return values


def first_place(wrong: np.ndarray) -> tuple[int, ...]:
    """Place of the first entry that is true."""
    return tuple(int(place) for place in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def whole_numbers(values: np.ndarray, allowed: np.ndarray, what: str, remedy: str) -> np.ndarray:
    """The targets as int64.

    :param allowed: of the same shape; False where the value is out of range.
    :param what: what a value is, for the message.
    :raises DataInvalid: a NaN, a fraction, or a value that is not allowed.
    """
    wrong = ~allowed
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            wrong |= ~(values == np.floor(values))
    if wrong.any():
        item, *place = first_place(wrong)
        where = f" at {place}" if place else ""
        raise DataInvalid(
            f"item {item}: target {quoted_value(values[(item, *place)])}{where} is not {what}; {remedy}"
        )
    return values.astype(np.int64)
