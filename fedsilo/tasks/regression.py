"""The regression task, in which every example has one or several real numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.classes import no_classes_findings
from fedsilo.tasks.interface import Answers, LearningTask, TaskConfig, first_place, paired_targets

if TYPE_CHECKING:
    from torch import Tensor


class RegressionConfig(TaskConfig):
    """Settings of the regression task."""

    outputs: int = Field(1, ge=1, le=65536, description="numbers that are predicted for each example")


class RegressionTask(LearningTask):
    """Predictions (n, outputs), targets of that shape, squared error averaged over outputs."""

    name = "regression"
    summary = "real numbers for each example"
    target = "finite numbers, as many as config.outputs"
    metrics = ("mae",)
    Config = RegressionConfig
    config: RegressionConfig

    @override
    def check(self) -> list[Finding]:
        """There are no classes."""
        return no_classes_findings(self.data, "regression", "spec.task.config.outputs says how many numbers")

    @property
    @override
    def outputs(self) -> int:
        return self.config.outputs

    @property
    @override
    def outputs_field(self) -> str:
        return "spec.task.config.outputs"

    @property
    @override
    def answers(self) -> Answers:
        return "numbers"

    @property
    @override
    def standardises_targets(self) -> bool:
        # A task of somebody else's that is made of this one says by itself what it learns.
        asked = self.data.preprocessing
        return type(self) is RegressionTask and asked is not None and asked.standardise

    @override
    def targets(self, values: np.ndarray) -> np.ndarray:
        """(n, outputs), finite float32; float64 where they are centred first."""
        values = paired_targets(values, (self.outputs,), "as many numbers as spec.task.config.outputs")
        with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
            numbers = np.ascontiguousarray(values, dtype=np.float32)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            item, output = first_place(wrong)
            raise DataInvalid(
                f"item {item}: target {quoted_value(values[item, output])} of output {output} is not a finite number;"
                " remove or mend the item"
            )
        return np.ascontiguousarray(values, dtype=np.float64) if self.standardises_targets else numbers

    @override
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        from torch.nn import functional

        return functional.mse_loss(outputs, targets)

    @override
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        """Absolute and squared error, each the mean over outputs."""
        error = self.predictions(outputs) - targets
        return {"mae": error.abs().mean(dim=1), "loss": error.square().mean(dim=1)}

    @override
    def predictions(self, outputs: Tensor) -> Tensor:
        """The values themselves, (n, outputs); float64 stays."""
        import torch

        return outputs.to(torch.promote_types(outputs.dtype, torch.float32))
