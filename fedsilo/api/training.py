"""The `training` section of a FederatedJob: rounds, and what a silo does in each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.api.common import Fields, Flag, Integer, Number


class OptimizerSpec(Fields):
    """The silos' local optimiser; its state is reset in every round."""

    name: Literal["sgd"] = Field(default="sgd", description="Stochastic gradient descent.")
    learning_rate: Number = Field(
        default=0.01, gt=0, le=1000, description="Step size before schedule and warm-up."
    )
    momentum: Number = Field(default=0.9, ge=0, lt=1, description="Heavy-ball momentum.")
    weight_decay: Number = Field(default=0.0, ge=0, le=1000, description="L2 penalty added to the gradient.")


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

    rounds: Integer = Field(ge=1, le=10_000, description="Number of rounds.")
    local_epochs: Integer = Field(
        default=1, ge=1, le=10_000, description="Passes over the silo's data per round."
    )
    batch_size: Integer = Field(default=32, ge=1, le=1_000_000, description="Examples per step.")
    seed: Integer = Field(
        default=0, ge=0, le=2**53 - 1, description="Seed from which every other is derived."
    )
    threads: Integer = Field(default=1, ge=1, le=1024, description="CPU threads of each process.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where to compute; auto is cuda if there is a GPU."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Precision of the forward pass; bfloat16 is mixed precision, weights stay float32.",
    )
    optimizer: OptimizerSpec = Field(default=OptimizerSpec(), description="The silos' local optimiser.")
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        default="constant", description="Learning rate over the rounds."
    )
    decay: Number = Field(
        default=1.0, gt=0, le=1, description="Factor per round of the exponential schedule."
    )
    warmup_rounds: Integer = Field(
        default=0, ge=0, le=10_000, description="Rounds in which the learning rate rises to its value."
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
    augmentation: AugmentationSpec | None = Field(
        default=None, description="Random changes of images during training; none when null."
    )
