"""Settings of DANN, and names that its halves share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig

DISCRIMINATOR = "discriminator."
LAYERS: Mapping[str, tuple[str, ...]] = {
    "0.weight": ("hidden", "feature"),
    "0.bias": ("hidden",),
    "2.weight": ("hidden", "hidden"),
    "2.bias": ("hidden",),
    "4.weight": ("silos", "hidden"),
    "4.bias": ("silos",),
}
"""Shapes of the discriminator D."""

NUMBER = "number"
"""Setting of the task: which output of D is the silo's, from 0."""

SILOS = "silos"
"""Setting of the task: outputs of D, one for each silo of the job."""


class DANNConfig(MethodConfig):
    """Settings of DANN, the width of its discriminator and how that acts on the model."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: model and discriminator step together. released: by turns, the model first [paper, "
        "Algorithm 1; FedBR's released code].",
    )
    reversal: float = Field(
        default=0.01,
        ge=0,
        description="lambda, by which the discriminator's reversed gradient counts in the encoder; 0 is FedAvg beside "
        "a discriminator [FedBR's released code; paper: from 0 to 1 in the course of training].",
    )
    hidden: int = Field(
        default=256,
        ge=1,
        le=4096,
        description="Width of the discriminator's two layers [FedBR's released code].",
    )
