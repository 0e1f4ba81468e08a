"""Settings of FedDyn, its variant and the weight of its regulariser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig


class FedDynConfig(MethodConfig):
    """Settings of FedDyn in a job's `spec.method.config`."""

    variant: Literal["paper", "released", "map"] = Field(
        default="paper",
        description="paper: one alpha for all silos. released: alpha divided by a silo's size over their mean size. "
        "map: alpha divided by the number of tensors, twice the pull to zero, and no memory at the server, which moves "
        "by the part of the silos that is drawn [paper, Algorithm 1; released code; MAP's code].",
    )
    alpha: float = Field(
        default=0.01,
        gt=0,
        le=1000,
        description="Weight of the regulariser [released code; paper: 0.1, 0.01 or 0.001].",
    )
