"""The segmentation task, in which every pixel (or voxel) of an example is of exactly one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.tasks.classes import balanced_weights, class_count_findings
from fedsilo.tasks.interface import (
    Answers,
    LearningTask,
    Shape,
    WeightedConfig,
    paired_targets,
    whole_numbers,
)
from fedsilo.tasks.places import (
    UNSCORED_TARGET,
    places_divisor,
    places_loss,
    places_scores,
    require_scored_place,
)

if TYPE_CHECKING:
    from torch import Tensor


class SegmentationConfig(WeightedConfig):
    """Settings of the segmentation task."""

    ignore: int | None = Field(
        None, ge=0, le=65535, description="value of a mask where it says nothing, such as 255; none when null"
    )


class SegmentationTask(LearningTask):
    """Logits (n, classes, *sides), masks (n, *sides), cross-entropy averaged over pixels."""

    name = "segmentation"
    summary = "one class for each pixel"
    target = "a mask of the image's sides with classes, 0 to classes - 1"
    per_class = "over the pixels of that class"
    metrics = ("accuracy",)
    Config = SegmentationConfig
    config: SegmentationConfig

    @override
    def check(self) -> list[Finding]:
        """Classes and images are needed."""
        found = class_count_findings(self.data, "the classes of pixels are what is learned")
        if len(self.data.input_shape) < 3:
            shape = list(self.data.input_shape)
            remedy = "give [channels, height, width]"
            found.append(("spec.data.inputShape", shape, "is no image, which segmentation needs", remedy))
        ignore, classes = self.config.ignore, self.data.classes
        if ignore is not None and classes is not None and ignore < self.outputs:
            remedy = f"use {self.outputs} or more, such as 255"
            found.append(("spec.task.config.ignore", ignore, "is a class", remedy))
        return found

    @property
    @override
    def outputs(self) -> int:
        """One logit for each class, at every pixel."""
        return self.data.class_count

    @property
    @override
    def output_shape(self) -> Shape:
        return (self.outputs, *self._sides)

    @property
    def _sides(self) -> Shape:
        return tuple(self.data.input_shape[1:])

    @property
    @override
    def answers(self) -> Answers:
        """A class at every pixel."""
        return "pixels"

    @override
    def targets(self, values: np.ndarray) -> np.ndarray:
        """(n, *sides), int64, with `UNSCORED_TARGET` where the mask says nothing."""
        if values.shape[1:] == (1, *self._sides):
            values = values[:, 0]
        values = paired_targets(values, self._sides, "a mask of the sides of spec.data.inputShape")
        silent = np.zeros(values.shape, bool) if self.config.ignore is None else values == self.config.ignore
        allowed = silent | ((values >= 0) & (values < self.outputs))
        remedy = f"number classes from 0 to {self.outputs - 1}, or name a value that says nothing in "
        masks = whole_numbers(values, allowed, "a class of the job", remedy + "spec.task.config.ignore")
        masks[silent] = UNSCORED_TARGET
        require_scored_place(masks, f"{self.config.ignore}, spec.task.config.ignore")
        return masks

    @override
    def class_weights(self, targets: Tensor) -> Tensor | None:
        if not self.weighs_classes:
            return None
        return balanced_weights(targets[targets != UNSCORED_TARGET].bincount(minlength=self.outputs))

    @override
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Cross-entropy, mean over the pixels that are scored."""
        return places_loss(outputs, targets, weights)

    @override
    def divisor(self, targets: Tensor, weights: Tensor | None = None) -> Tensor | None:
        """The number of places that are scored, or the sum of their weights."""
        return places_divisor(targets, weights)

    @override
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        """Fraction of an image's pixels whose largest logit is their class's, and their mean cross-entropy."""
        return places_scores(outputs, targets)

    @override
    def predictions(self, outputs: Tensor) -> Tensor:
        """Probabilities (n, classes, *sides)."""
        return outputs.float().softmax(dim=1)
