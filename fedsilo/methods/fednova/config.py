"""Settings of FedNova, and the metric a_k by which it normalises."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig
from fedsilo.wire.combine import Quotient

NORMALIZER = "normalizer"
"""The metric a_k, how much of the way a silo's gradients account for."""

BY_NORMALIZER = Quotient(NORMALIZER)
"""Every silo's part of the average over a_k."""


class FedNovaConfig(MethodConfig):
    """Settings of FedNova in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="With momentum and mu together, paper: a_k is the norm of what each gradient counts for. released: "
        "momentum and proximal term are counted one after the other; otherwise both are the same [paper, eq. 6; "
        "released code].",
    )
    mu: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="Weight of FedProx's proximal term in the silos' loss [paper, Section 4; MAP: 0.0001 to 0.01].",
    )
    server_momentum: float = Field(
        default=0.0, ge=0, lt=1, description="Momentum of the server's step [released code; MAP: 0.3 to 0.9]."
    )
