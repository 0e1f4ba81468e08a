"""Settings of Per-FedAvg, and the name of its step after training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig

PERSONALISE = "personalise"
"""Phase and step after training in which silos make their own models."""


class PerFedAvgConfig(MethodConfig):
    """Settings of Per-FedAvg in a job's `spec.method.config`."""

    variant: Literal["paper", "map"] = Field(
        default="paper",
        description="paper: each pair of batches is a step, without momentum. map: as many steps as there are batches, "
        "on two batches each, with a momentum of all gradients; uniform means [paper, Algorithm 1; MAP's code].",
    )
    inner_rate: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="alpha, rate of the step to a silo's own model; null is the job's learning rate, in variant map "
        "with its schedule [paper, eq. 7].",
    )
    meta_rate: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="beta, rate of the steps of w; null is the job's learning rate with its schedule [paper, eq. 8].",
    )
