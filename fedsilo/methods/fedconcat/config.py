"""Settings of FedConcat, with those that FedConcat-ID shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from fedsilo.api.common import invalid_value
from fedsilo.methods.interface import MethodConfig


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
    """Settings of FedConcat's stages; noise on class counts is the job's, since only that is counted."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_epsilon(cls, given: Any) -> Any:
        """Refuse the paper's noise on label distributions: no epsilon holds for a job whose models have no noise."""
        if isinstance(given, Mapping) and "epsilon" in given:
            problem = "would bound the class counts alone, while models that tell of the same examples have no noise"
            remedy = (
                "use spec.privacy.differentialPrivacy, whose noise covers counts and models and which budgets "
                "count, or the method fedconcat-id, which sends no counts"
            )
            raise invalid_value(problem, remedy, "epsilon", value=given["epsilon"])
        return given
