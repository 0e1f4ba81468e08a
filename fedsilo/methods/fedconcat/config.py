"""Settings of FedConcat, with those that FedConcat-ID shares."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig

NOISY_KIND = "distribution"
"""Block of a label distribution with noise."""


class StagesConfig(MethodConfig):
    """Settings that FedConcat and FedConcat-ID share.

    They are clusters, rounds, and how the classifier on all features is trained.
    """

    clusters: int = Field(
        default=5, ge=1, le=1000, description="Number of clusters K [released code, run.sh]."
    )
    choice: Literal["fixed", "elbow"] = Field(
        default="fixed", description="elbow: K where the inertia curve bends, at most `clusters` [paper]."
    )
    size_capped: bool = Field(
        default=False,
        description="At most floor(1.2 N / K) silos in a cluster [released code, for CIFAR-100 and Tiny-ImageNet].",
    )
    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: stage 3 is FedAvg by samples over localEpochs [paper, Algorithm 1]. released: three "
        "mini-batches, uniform [released code].",
    )
    encoder_rounds: int = Field(
        default=50, ge=1, description="Rounds of stage 2, T_e [released code, run.sh]."
    )
    classifier_rounds: int = Field(
        default=1000, ge=1, description="Rounds of stage 3, T_c [released code, run.sh]."
    )
    warm_start: bool = Field(
        default=False,
        description="Start stage 3 from the clusters' classifiers side by side, biases summed [released code, for "
        "CIFAR-100 and Tiny-ImageNet].",
    )
    classifier_weight_decay: float | None = Field(
        default=None,
        ge=0,
        description="Weight decay of stage 3 when not null [released code: 1e-5]; else the job's, or 1e-5 if released.",
    )


class FedConcatConfig(StagesConfig):
    """Settings of FedConcat's stages, and what is done to label distributions before they leave their silos."""

    epsilon: float | None = Field(
        default=None,
        gt=0,
        description="Laplace noise of scale 1 / epsilon on the label distribution; none when null. It is drawn in the "
        "silo and from no seed, so another run gives another model; its privacy is not accounted [paper, privacy "
        "variant; released code].",
    )
