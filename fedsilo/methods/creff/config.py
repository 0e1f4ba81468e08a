"""Settings of CReFF, and names that its halves share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig

WEIGHT, BIAS = "gradient.weight", "gradient.bias"
"""Blocks of an update: `<name>/<class>`."""


class CReFFConfig(MethodConfig):
    """Settings of CReFF, with the defaults of the paper's Section 5.1."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: eq. 6 as printed, 300 steps of re-training, from the last re-trained classifier in "
        "fedsilo's reading: the paper does not print what its start is. released: rows summed with the bias as one "
        "more, 300 epochs from a new random classifier, real gradients of random draws [paper; released code].",
    )
    dsa: bool | None = Field(
        default=None,
        description="Whether each draw of images behind a real gradient goes through one differentiable Siamese "
        "augmentation; true needs variant: released. When null, that form does so where inputs are images [released "
        "code].",
    )
    features_per_class: int = Field(
        default=100, ge=1, description="Federated features per class, m [paper, Section 5.1]."
    )
    match_steps: int = Field(
        default=100, ge=1, description="Steps of feature optimisation in a round, I [paper, Section 5.1]."
    )
    feature_learning_rate: float = Field(
        default=0.1, gt=0, description="Learning rate of the features [paper, Section 5.1]."
    )
    retrain: int = Field(
        default=300,
        ge=1,
        description="Re-training, J: steps [paper, Section 5.1] or epochs [released code].",
    )
    retrain_learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="Learning rate of re-training when null: 0.1 [paper, Section 5.1] or 0.01 [released code].",
    )
    retrain_batch_size: int = Field(
        default=32, ge=1, description="Features in a step of re-training [paper, Section 5.1]."
    )

    @property
    def released(self) -> bool:
        """Whether to do as the released code does."""
        return self.variant == "released"
