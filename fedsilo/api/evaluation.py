"""The `evaluation` section of a FederatedJob: when, on what and by what the model is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.class_names import PositiveClass
from fedsilo.api.common import DatasetName, Fields, Integer, Number, Reference, invalid_value
from fedsilo.api.figures import SMALLER_IS_BETTER


def better_mode(metric: str) -> Literal["max", "min"]:
    """Whether larger or smaller values of a metric are better; of one's own metrics larger ones."""
    return "min" if metric in SMALLER_IS_BETTER else "max"


class BestSpec(Fields):
    """By what the rounds' models are compared."""

    metric: Reference | None = Field(
        default=None,
        min_length=1,
        description="Name of a score as reports have it; the first of metrics, else the main one of spec.task, when "
        "null.",
    )
    mode: Literal["max", "min"] | None = Field(
        default=None,
        description="Whether larger or smaller values are better; `min` for errors and losses, else `max`, when null.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_mode(cls, given: Any) -> Any:
        """Fill the mode in where the metric says it, so that a job is the same whether it is written out or not."""
        metric = given.get("metric") if isinstance(given, Mapping) else None
        if isinstance(metric, str) and given.get("mode") is None:
            return {**given, "mode": better_mode(metric)}
        return given


class EvaluationSpec(Fields):
    """When, on what and by what the model is scored."""

    every: Integer = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Rounds between evaluations; the last round is always evaluated.",
    )
    test_dataset: DatasetName | None = Field(
        default=None, description="One of aggregator.datasets; the silos score on validation data when null."
    )
    metrics: tuple[Reference, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Metrics besides the main one of spec.task and the loss: names (docs/evaluation.md) or "
        "python:package.module:factory.",
    )
    positive_class: PositiveClass | None = Field(
        default=None,
        description="Of two classes the one that recall, precision, f1, auroc, average_precision, dice and iou are of: "
        "its name, or its number where data.classes has no names; the mean over both when null.",
    )
    best: BestSpec | None = Field(
        default=None, description="The job ends with the best model by this; with the last one when null."
    )
    patience: Integer | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Evaluations without an improvement of best.metric after which the job ends; none when null.",
    )
    min_delta: Number | None = Field(
        default=None, ge=0, description="Change that counts as an improvement must be larger; 0 when null."
    )
    checkpoints: Integer | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Rounds between models that the aggregator keeps beside the result; none when null.",
    )

    @model_validator(mode="after")
    def _stopping_has_a_metric(self) -> Self:
        if self.patience is not None and self.best is None:
            remedy = "add best: {}, or name a metric in best: {metric, mode}"
            raise invalid_value(
                "waits for nothing that could improve", remedy, "patience", value=self.patience
            )
        if self.min_delta is not None and self.patience is None:
            remedy = "set patience too, or remove it"
            raise invalid_value("belongs to early stopping", remedy, "minDelta", value=self.min_delta)
        return self
