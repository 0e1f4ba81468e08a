"""Settings of VHL, for its virtual examples and their alignment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig


class VHLConfig(MethodConfig):
    """Settings of VHL in a job's `spec.method.config`."""

    variant: Literal["paper", "fedbr"] = Field(
        default="paper",
        description="paper: what is aligned are the features, the classifier's input. fedbr: its output, the logits "
        "[paper; FedBR's released code].",
    )
    virtual_weight: float = Field(
        default=1.0,
        ge=0,
        description="alpha, of the cross-entropy on virtual examples [FedBR's code; released code: 0.5].",
    )
    temperature: float = Field(
        default=0.07, ge=0.001, description="T of the supervised contrastive loss [released code]."
    )
    per_class: int = Field(
        default=200,
        ge=1,
        le=100_000,
        description="Virtual examples of each class [FedBR, Table 2: 2,000 of ten].",
    )
    mixup: float | None = Field(
        default=None,
        ge=0.01,
        le=100,
        description="Mix the real examples of a batch first, as method mixup does, by parts from Beta(mixup, mixup); "
        "not when null [FedBR, Table 2: with Mixup on CIFAR-100].",
    )
