"""The `evaluation` section of a FederatedJob: when, on what and by what the model is scored."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.common import DatasetName, Fields, Integer, Number, Reference, invalid_value


class BestSpec(Fields):
    """By what the rounds' models are compared."""

    metric: Reference = Field(min_length=1, description="Name of a score as reports have it.")
    mode: Literal["max", "min"] = Field(
        default="max", description="Whether larger or smaller values are better."
    )


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
            remedy = "name a metric in best: {metric, mode}"
            raise invalid_value(
                "waits for nothing that could improve", remedy, "patience", value=self.patience
            )
        if self.min_delta is not None and self.patience is None:
            remedy = "set patience too, or remove it"
            raise invalid_value("belongs to early stopping", remedy, "minDelta", value=self.min_delta)
        return self
