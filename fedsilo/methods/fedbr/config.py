"""Settings of FedBR, and names that its halves share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig

THETA = "projection."
LAYERS: Mapping[str, tuple[str, ...]] = {
    "0.weight": ("projected", "feature"),
    "0.bias": ("projected",),
    "2.weight": ("projected", "projected"),
    "2.bias": ("projected",),
    "4.weight": ("feature", "projected"),
    "4.bias": ("feature",),
}
"""Shapes of the projection P_theta."""


class FedBRConfig(MethodConfig):
    """Settings of FedBR, with the defaults of the released code where the paper prints symbols only."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: global features are those of the step's pseudo-data. released: those of the first step's, "
        "which differs for mixtures only; with localSteps round 1 is a single step [paper, Algorithm 1; released code, "
        "which averages after its first step and then every 50].",
    )
    pseudo_data: Literal["means", "mixture"] = Field(
        default="means",
        description="means: RSM, of the silo's own examples. mixture: its examples mixed into proxies that all "
        "silos share, means of inputs of uniform noise [paper, Section 4.1; the silo's own and noise, unlike the "
        "released code].",
    )
    averaged: int = Field(default=10, ge=1, le=10_000, description="Inputs in a mean [released code].")
    mixed: int = Field(default=1, ge=1, le=1000, description="Local examples K in a mixture [released code].")
    pseudo_weight: float = Field(
        default=1.0, ge=0, description="lambda; 0 leaves component 1 out [released code; paper, Table 4]."
    )
    contrast_weight: float = Field(
        default=0.5, ge=0, description="mu; 0 leaves component 2 out [released code; paper, Table 4]."
    )
    temperature: float = Field(
        default=0.5, gt=0, description="tau_1 and tau_2 [released code, which multiplies by 2]."
    )
    mixup: float | None = Field(
        default=None,
        ge=0.01,
        le=100,
        description="Mix each batch first, as method mixup does, by parts from Beta(mixup, mixup); not when null "
        "[paper, Tables 1 and 4: with Mixup; released code: 0.2].",
    )
    max_step: bool = Field(
        default=True, description="Step the projection up before each local step [paper, Table 4]."
    )
