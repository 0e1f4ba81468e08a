"""The multi-label task, in which every example has some of the labels, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.tasks.classes import class_count_findings
from fedsilo.tasks.interface import Answers, LearningTask, WeightedConfig, paired_targets, whole_numbers
from fedsilo.tasks.places import UNSCORED_TARGET

if TYPE_CHECKING:
    from torch import Tensor


class MultilabelTask(LearningTask):
    """Logits (n, labels), targets (n, labels) of 0 and 1, binary cross-entropy averaged over labels."""

    name = "multilabel"
    summary = "any number of labels for each example"
    target = "0 or 1 for each label"
    per_class = "over all examples, for that label against its absence"
    metrics = ("accuracy",)
    Config = WeightedConfig
    config: WeightedConfig

    @override
    def check(self) -> list[Finding]:
        """`classes` are the labels."""
        return class_count_findings(self.data, "the labels are what is learned")

    @property
    @override
    def outputs(self) -> int:
        """One logit for each label."""
        return self.data.class_count

    @property
    @override
    def answers(self) -> Answers:
        return "labels"

    @override
    def targets(self, values: np.ndarray) -> np.ndarray:
        """(n, labels), float32, 0 or 1."""
        values = paired_targets(values, (self.outputs,), "0 or 1 for each label of spec.data.classes")
        allowed = (values == 0) | (values == 1)
        return whole_numbers(values, allowed, "0 or 1", "write 1 where the label holds, else 0").astype(
            np.float32
        )

    @override
    def class_weights(self, targets: Tensor) -> Tensor | None:
        """Weight of a label's presence, absent / present; 1 where either is missing."""
        import torch

        if not self.weighs_classes:
            return None
        present = targets.sum(dim=0)
        absent = len(targets) - present
        return torch.where(
            (present > 0) & (absent > 0), absent / present.clamp(min=1), torch.ones_like(present)
        )

    @override
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Binary cross-entropy, mean over labels."""
        from torch.nn import functional

        return functional.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weights)

    @override
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        """Fraction of the labels that are told rightly at probability 1/2, and the mean of their cross-entropies.

        A label whose target is `UNSCORED_TARGET` counts in neither.
        """
        from torch.nn import functional

        scored = (targets != UNSCORED_TARGET).all(dim=0)
        if not scored.all():
            outputs, targets = outputs[:, scored], targets[:, scored]
        outputs = outputs.float()
        each = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return {"accuracy": ((outputs > 0) == (targets > 0.5)).double().mean(dim=1), "loss": each.mean(dim=1)}

    @override
    def predictions(self, outputs: Tensor) -> Tensor:
        """Probabilities (n, labels), each for itself."""
        return outputs.float().sigmoid()
