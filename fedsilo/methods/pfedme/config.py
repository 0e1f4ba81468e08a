"""Settings of pFedMe, for the steps of silos' own models and of the common one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig


class PFedMeConfig(MethodConfig):
    """Settings of pFedMe in a job's `spec.method.config`."""

    variant: Literal["paper", "map"] = Field(
        default="paper",
        description="paper: theta moves at personalRate, and w by lambda times the job's learning rate. map: theta at "
        "the job's learning rate, w by the part alpha; uniform means. Steps have no momentum; weight decay is of theta "
        "[paper, Algorithm 1; MAP's released code].",
    )
    proximal_weight: float = Field(
        default=15.0, gt=0, le=1e6, description="lambda, the pull of theta towards w [paper: 15]."
    )
    personal_steps: int = Field(
        default=5, ge=1, le=10_000, description="K, steps of theta on a batch [paper: 5]."
    )
    personal_rate: float = Field(
        default=0.09,
        gt=0,
        le=1e6,
        description="eta_p, rate of theta's steps in variant paper [released code: 0.09].",
    )
    alpha: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Part of the way to theta that w takes in variant map [MAP's code].",
    )
    beta: float = Field(
        default=1.0, gt=0, description="w <- (1 - beta) w + beta times the mean [paper, Algorithm 1: 1 or 2]."
    )
