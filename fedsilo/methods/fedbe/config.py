"""Settings of FedBE's ensemble and of its distillation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig


class FedBEConfig(MethodConfig):
    """Settings of FedBE, with the defaults of the paper's released code."""

    distribution: Literal["gaussian", "dirichlet"] = Field(
        default="gaussian",
        description="Of the models: a Gaussian of the silos' updates, or convex combinations of their models with "
        "weights that a Dirichlet distribution gives [paper, Section 3.3; released code].",
    )
    samples: int = Field(default=10, ge=0, description="Models drawn in a round, M [paper, Section 4.1].")
    temperature: float = Field(
        default=0.5,
        gt=0,
        description="Sharpens the mean probabilities, p^(1/T) [paper, Section 3.4; released code].",
    )
    learning_rate: float = Field(default=1e-3, gt=0, description="SGD's, with momentum 0.9 [released code].")
    weight_decay: float = Field(default=1e-5, ge=0, description="Of the distillation [released code].")
    epochs: int = Field(default=20, ge=1, description="Passes over the public examples [released code].")
    batch_size: int = Field(default=128, ge=1, description="Public examples in a step [released code].")
    average_after: int = Field(
        default=500,
        ge=0,
        description="Steps after which weights are averaged; a shorter distillation ends with its last weights "
        "[released code].",
    )
    average_every: int = Field(
        default=25, ge=1, description="Steps between weights that are averaged [released code]."
    )
