"""The classification task, in which every example is of exactly one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.classes import balanced_weights, class_count_findings
from fedsilo.tasks.interface import Answers, LearningTask, WeightedConfig

if TYPE_CHECKING:
    from torch import Tensor


class ClassificationTask(LearningTask):
    """Classification, the default task: logits (n, classes), labels (n,), cross-entropy."""

    name = "classification"
    summary = "one class for each example"
    target = "a class, 0 to classes - 1"
    per_class = "over the examples of that class"
    metrics = ("accuracy",)
    Config = WeightedConfig
    config: WeightedConfig

    @override
    def check(self) -> list[Finding]:
        return class_count_findings(self.data, "a class is what is learned")

    @property
    @override
    def outputs(self) -> int:
        """One logit for each class."""
        return self.data.class_count

    @property
    @override
    def single_label(self) -> bool:
        return True

    @property
    @override
    def answers(self) -> Answers:
        return "class"

    @override
    def targets(self, values: np.ndarray) -> np.ndarray:
        return class_labels(values, self.outputs)

    @override
    def class_weights(self, targets: Tensor) -> Tensor | None:
        return balanced_weights(targets.bincount(minlength=self.outputs)) if self.weighs_classes else None

    @override
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        from torch.nn import functional

        return functional.cross_entropy(outputs, targets, weight=weights)

    @override
    def divisor(self, targets: Tensor, weights: Tensor | None = None) -> Tensor | None:
        """The sum of the examples' weights, where they have any."""
        return None if weights is None else weights[targets].sum()

    @override
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        """Whether the largest logit is the label's, and the cross-entropy in nats."""
        return label_scores(outputs, targets)

    @override
    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.float().softmax(dim=1)


def label_scores(logits: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
    """Scores of each example: whether its class has the largest logit, and the cross-entropy in nats."""
    from torch.nn import functional

    return {
        "accuracy": logits.argmax(dim=1) == labels,
        "loss": functional.cross_entropy(logits.float(), labels, reduction="none"),
    }


def class_labels(y: np.ndarray, classes: int) -> np.ndarray:
    """Labels (n,) as int64.

    :raises DataInvalid: another shape, a fraction, or a number that is no class.
    """
    if y.ndim != 1:
        raise DataInvalid(
            f"labels have shape {list(y.shape[1:])} for each example; give one class for each example"
        )
    if y.dtype.kind == "f":
        whole = np.isfinite(y) & (y == np.floor(y))
        if not whole.all():
            item = int(np.argmin(whole))
            raise DataInvalid(
                f"item {item}: label {quoted_value(y[item])} is not an integer; number classes from 0 to {classes - 1}"
            )
    within = (y >= 0) & (y < classes)
    if not within.all():
        item = int(np.argmin(within))
        raise DataInvalid(
            f"item {item}: label {quoted_value(y[item])} is not a class of the job (data.classes is {classes});"
            f" number classes from 0 to {classes - 1}"
        )
    return y.astype(np.int64)
