"""The `training` section of a FederatedJob: rounds, and what a silo does in each."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from fedsilo.api.common import Fields, Flag, Integer, Number, Reference, invalid_value
from fedsilo.api.patterns import REFERENCE

Decay = Annotated[Number, Field(ge=0, lt=1)]
MetricName = Annotated[str, StringConstraints(pattern=REFERENCE, max_length=63)]

OWN_METRIC_NAMES = ("loss", "accuracy", "personal_accuracy", "named_personal_accuracy", "named_scores")
"""Names that mean the same in every job, so that a function of the job's own gives no other meaning to them."""

MOMENTUM = 0.9
"""Momentum of `sgd` where a job names none."""

BETAS, EPS = (0.9, 0.999), 1e-8
"""PyTorch's settings of `adam` and `adamw`, where a job names none."""


class OptimizerSpec(Fields):
    """The silos' local optimiser."""

    name: Literal["sgd", "adam", "adamw"] = Field(
        default="sgd", description="Stochastic gradient descent, Adam, or Adam with decoupled weight decay."
    )
    learning_rate: Number = Field(
        default=0.01, gt=0, le=1000, description="Step size before schedule and warm-up."
    )
    momentum: Number = Field(default=MOMENTUM, ge=0, lt=1, description="Heavy-ball momentum.")
    nesterov: Flag | None = Field(
        default=None, description="Nesterov's momentum, of sgd only; heavy-ball when null."
    )
    weight_decay: Number = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="L2 penalty added to the gradient; with adamw the part of itself that a weight loses in a step "
        "of rate 1.",
    )
    betas: tuple[Decay, ...] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="Decay of the two moments of adam and adamw; 0.9 and 0.999 when null.",
    )
    eps: Number | None = Field(
        default=None, gt=0, le=1, description="Term in the denominator of adam and adamw; 1e-8 when null."
    )
    state: Literal["reset", "keep"] | None = Field(
        default=None,
        description="Whether momentum or moments begin empty in every round, or stay in the silo from one round to the "
        "next, as its private state; reset when null.",
    )

    @model_validator(mode="after")
    def _settings_of_the_named_one(self) -> Self:
        if self.name == "sgd":
            for field in ("betas", "eps"):
                if getattr(self, field) is not None:
                    remedy = "remove it, or use adam or adamw"
                    raise invalid_value("has no meaning with sgd", remedy, field, value=getattr(self, field))
            if self.nesterov and not self.momentum:
                problem = "has no meaning without momentum"
                raise invalid_value(
                    problem, "set momentum, 0.9 for example, or remove it", "nesterov", value=True
                )
            return self
        if self.momentum != MOMENTUM:
            problem, remedy = f"has no meaning with {self.name}", "remove it and set the first of betas"
            raise invalid_value(problem, remedy, "momentum", value=self.momentum)
        if self.nesterov:
            problem = f"has no meaning with {self.name}"
            raise invalid_value(problem, "remove it, or use sgd", "nesterov", value=True)
        return self


class AugmentationSpec(Fields):
    """Random changes of images during training; a model is scored on the original images."""

    crop: Integer = Field(
        default=0,
        ge=0,
        le=65536,
        description="Pixels of border on each side; a crop of the original size is kept.",
    )
    border: Literal["zero", "reflect"] = Field(default="zero", description="How the border is filled.")
    flip: Flag = Field(default=False, description="Mirrors left and right with probability 1/2.")
    rotation: Number = Field(
        default=0.0, ge=0, le=180, description="Largest angle in degrees, to either side."
    )
    per: Literal["image", "batch"] = Field(
        default="image", description="Whether to draw for every image or once for a whole batch."
    )


class TrainingSpec(Fields):
    """Rounds, and what a silo does in each."""

    rounds: Integer = Field(
        ge=0,
        le=10_000,
        description="Number of rounds of training; 0 calibrates spec.model.initialWeights by a method that can.",
    )
    local_epochs: Integer = Field(
        default=1, ge=1, le=10_000, description="Passes over the silo's data per round."
    )
    local_steps: Integer | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Exactly so many steps per round in place of localEpochs, over the silo's data again as needed; "
        "by localEpochs when null.",
    )
    batch_size: Integer = Field(default=32, ge=1, le=1_000_000, description="Examples per step.")
    seed: Integer = Field(
        default=0, ge=0, le=2**53 - 1, description="Seed from which every other is derived."
    )
    threads: Integer = Field(default=1, ge=1, le=1024, description="CPU threads of each process.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where to compute; auto is cuda if there is a GPU."
    )
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32",
        description="Precision of the forward pass; bfloat16 and float16 are mixed precision, weights stay float32.",
    )
    deterministic: Flag | None = Field(
        default=None,
        description="Whether the same job gives the same bytes on the same hardware; false lets a GPU choose the "
        "fastest algorithms and TF32; true when null.",
    )
    gradient_accumulation: Integer | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Batches whose mean gradient makes one step, for batches that memory does not hold; 1 when null.",
    )
    optimizer: OptimizerSpec = Field(default=OptimizerSpec(), description="The silos' local optimiser.")
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        default="constant", description="Learning rate over the rounds."
    )
    decay: Number = Field(
        default=1.0, gt=0, le=1, description="Factor per round of the exponential schedule."
    )
    warmup_rounds: Integer = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Rounds in which the learning rate rises to its value; at most rounds.",
    )
    gradient_clip: Number | None = Field(
        default=None, gt=0, description="Largest global gradient norm; none when null."
    )
    min_steps: Integer = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Minimum number of steps per round; a small silo repeats its data.",
    )
    trainer: Reference | None = Field(
        default=None,
        description="Function that trains in place of the built-in loop, python:package.module:function; none when "
        "null.",
    )
    trainer_metrics: tuple[MetricName, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Names of the numbers besides loss that trainer gives back in every round, each of which leaves "
        "the silo; none when null.",
    )
    augmentation: AugmentationSpec | None = Field(
        default=None, description="Random changes of images during training; none when null."
    )

    @model_validator(mode="after")
    def _steps_or_epochs(self) -> Self:
        """A default cannot be told from what is written: a cluster fills it in."""
        if self.local_steps is None:
            return self
        for field, value in (("localEpochs", self.local_epochs), ("minSteps", self.min_steps)):
            if value != 1:
                problem = (
                    f"has no meaning with localSteps, which says the number of steps ({self.local_steps})"
                )
                raise invalid_value(problem, f"remove {field} or localSteps", field, value=value)
        return self

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        if self.warmup_rounds > self.rounds:
            problem = (
                f"is more than rounds ({self.rounds}), so that the learning rate never reaches its value"
            )
            remedy = f"use at most {self.rounds}, or more rounds"
            raise invalid_value(problem, remedy, "warmupRounds", value=self.warmup_rounds)
        return self

    @model_validator(mode="after")
    def _metrics_are_of_a_trainer(self) -> Self:
        names = self.trainer_metrics or ()
        if names and self.trainer is None:
            problem = "has no meaning without trainer, whose metrics they are"
            raise invalid_value(
                problem, "name the function in trainer, or remove it", "trainerMetrics", value=list(names)
            )
        for position, name in enumerate(names):
            if name in OWN_METRIC_NAMES:
                problem, remedy = (
                    "has a meaning of its own already",
                    "use another name; loss needs no declaration",
                )
                raise invalid_value(problem, remedy, "trainerMetrics", position, value=name)
            if name in names[:position]:
                raise invalid_value(
                    "is there twice", "name each metric once", "trainerMetrics", position, value=name
                )
        return self

    @property
    def examples_per_step(self) -> int:
        """Examples whose mean gradient makes one step, where a pass has so many left."""
        return self.batch_size * (self.gradient_accumulation or 1)

    @property
    def repeatable(self) -> bool:
        """Whether the same job is to give the same bytes."""
        return self.deterministic is not False
