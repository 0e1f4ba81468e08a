"""Settings of CCVR, and names that its halves share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.components.post_training import AfterConfig
from fedsilo.methods.moments import SpreadKind

STATISTICS = "statistics"
"""Step in which the silos disclose statistics of their features."""

COVARIANCE: SpreadKind = "covariance"
MOMENT: SpreadKind = "moment"
"""Blocks of an update: `<name>/<class>`, the unbiased covariance of the class's features, or the mean of their squares
and products."""

Covariance = Literal["full", "diagonal", "none"]


class CCVRConfig(AfterConfig):
    """What is disclosed, what is drawn from it, how the classifier is trained on that, and the method before it."""

    covariance: Covariance = Field(
        default="full",
        description="full: d x d per class [paper, Section 4.2]; diagonal: d; none: means and one shared variance.",
    )
    shared_variance: float = Field(
        default=1.0, gt=0, description="Variance of every feature when covariance is none [fedsilo]."
    )
    virtual_per_class: int = Field(
        default=100,
        ge=1,
        description="Virtual features M_c [paper, experiments: 100, 500, 1000 for CIFAR-10, CIFAR-100, CINIC-10].",
    )
    proportional: bool = Field(
        default=False,
        description="M_c in proportion to N_c, virtualPerClass on average of the disclosed classes and at least one of "
        "each [paper, Section 4.2: could be proportional to N_c / |D|].",
    )
    epochs: int = Field(
        default=10, ge=1, description="Passes over the virtual features [fedsilo: not printed]."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="Of the calibration; the job's when null [fedsilo: not printed]."
    )
    momentum: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Of the calibration; the job's when null [fedsilo: not printed].",
    )
    weight_decay: float = Field(
        default=0.0, ge=0, description="Of the calibration, L2 [fedsilo: not printed]."
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Virtual features in a step of the calibration; the job's when null [fedsilo: not printed].",
    )
    relu: bool = Field(
        default=False,
        description="Cut virtual features at zero, as real ones after a ReLU are [option of the paper].",
    )
    tukey_beta: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Tukey's transform x^beta of virtual features, log x for 0; needs relu [option of the paper].",
    )
