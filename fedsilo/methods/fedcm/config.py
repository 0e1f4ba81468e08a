"""Settings of FedCM, and the quotient of models over local steps that its server half reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.components.local_steps import STEPS
from fedsilo.methods.interface import MethodConfig
from fedsilo.wire.combine import Quotient

BY_STEPS = Quotient(STEPS)
"""Every silo's part of the average over its steps."""


class FedCMConfig(MethodConfig):
    """Settings of FedCM, its rule of momentum and the part of the silo's own gradient in a step."""

    variant: Literal["paper", "fedbr"] = Field(
        default="paper",
        description="paper: no momentum beside Delta. fedbr: the job's momentum, mixed with Delta; the first round, "
        "without Delta, is plain SGD with momentum [paper, Algorithm 2; FedBR's code].",
    )
    alpha: float = Field(
        default=0.1, gt=0, le=1, description="Part of a step that is the silo's own gradient [paper: 0.1]."
    )
