"""Settings of Ratio Loss."""

from __future__ import annotations

from pydantic import Field

from fedsilo.methods.interface import MethodConfig

WEIGHTS = "weights"
"""Tree, and its one array (C,)."""


class RatioLossConfig(MethodConfig):
    """Settings of Ratio Loss in a job's `spec.method.config`."""

    alpha: float = Field(default=1.0, ge=0, description="Weight of a class of ratio 0 [released code].")
    beta: float = Field(default=0.1, ge=0, description="Weight that a ratio of 1 adds [released code].")
