"""Settings of FedProto, its variant and the weight of the distance to prototypes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsilo.methods.interface import MethodConfig


class FedProtoConfig(MethodConfig):
    """Settings of FedProto in a job's `spec.method.config`."""

    variant: Literal["paper", "map"] = Field(
        default="paper",
        description="paper: mean squared distance of features to their class's prototype, as the authors' code has it; "
        "prototypes are means over silos, each silo alike. map: squared distance of the batch's class means; "
        "prototypes by the silos' counts, half of each the last one [paper, eq. 3 and 7; MAP's released code].",
    )
    prototype_weight: float = Field(
        default=1.0, ge=0, description="lambda of the distance; 0 trains alone [paper and its code: 1]."
    )
