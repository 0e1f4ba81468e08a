"""Declaration of CReFF: its settings, and what silos send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig, Payload, Phase, ServerHalf, SiloStep, Step
from fedsilo.methods.method import Method

WEIGHT, BIAS = "gradient.weight", "gradient.bias"
"""Blocks of an update: `<name>/<class>`."""


class CReFFConfig(MethodConfig):
    """Settings; defaults are the paper's, Section 5.1."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: eq. 6 as printed, 300 steps of re-training, from the last re-trained classifier in "
        "fedsilo's reading: the paper does not print what its start is. released: rows summed with the bias as one "
        "more, 300 epochs from a new random classifier; real gradients without the code's DSA augmentation of images "
        "[paper; released code].",
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


class CReFF(Method):
    """Declaration of CReFF."""

    name = "creff"
    title = "Classifier re-training with federated features"
    citation = (
        "X. Shang, Y. Lu, G. Huang, H. Wang. Federated Learning on Heterogeneous and Long-Tailed Data via Classifier "
        "Re-Training with Federated Features. IJCAI 2022."
    )
    at_aggregator = "the model, the re-trained classifier and the federated features"
    in_silo = "nothing"
    Config = CReFFConfig
    config: CReFFConfig

    def steps(self) -> Mapping[str, Step]:
        """The model, and per class the mean gradient of the head."""
        return {"train": Step((Payload("model"), *gradient_payloads(self.config.released)), ("loss",))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    def server(self) -> ServerHalf:
        """Features and head at the aggregator."""
        from fedsilo.methods.creff.server import CReFFServer

        return CReFFServer(self.config)

    def silo(self) -> Mapping[str, SiloStep]:
        """Gradients of the head first, then local training of the model."""
        from fedsilo.methods.creff.silo import TrainWithGradients

        return {"train": TrainWithGradients(self.config.released)}


def gradient_payloads(released: bool) -> tuple[Payload, ...]:
    """One gradient per class; that of the bias only in the released form, since eq. 6 has no use for it."""
    weight = Payload("averaged_gradients", WEIGHT, ("classes", "feature"), per_class=True)
    bias = Payload("averaged_gradients", BIAS, ("classes",), per_class=True)
    return (weight, bias) if released else (weight,)
