"""DittoRS is Ditto whose common model is trained with FedRS's restricted softmax.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes", where it is one
of the combinations that MAP is compared with. The silo's own model is trained with the plain softmax.

A silo's own model begins with the initial weights, and trains on the same batches as the sent one, in an optimiser
of its own. The reported training loss is the sent model's. The aggregator takes a uniform mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.proximal import Distance
from fedsilo.methods.components.restricted_softmax import (
    Scaling,
    class_counts,
    class_scales,
    restricted_loss,
)
from fedsilo.methods.components.two_stages import CITATION
from fedsilo.methods.ditto import Ditto, PullConfig
from fedsilo.methods.interface import SiloContext

if TYPE_CHECKING:
    from fedsilo.learning.training import Loss

SCALINGS: Mapping[str, Scaling] = {"paper": "mask", "released": "frequency"}


class DittoRSConfig(PullConfig):
    """Settings of the common model's restricted softmax and of the pull on silos' own models."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: alpha for missing classes, 1 for others, and the squared pull. released: alpha + "
        "(1 - alpha) n_c / max n, and the mean Huber distance, far weaker [FedRS and Ditto; MAP's released code].",
    )
    alpha: float = Field(
        default=0.9, ge=0, le=1, description="Scale of a missing class's logit; 1 is Ditto [MAP: 0.9]."
    )

    @property
    @override
    def distance(self) -> Distance:
        return "squared" if self.variant == "paper" else "huber"


class DittoRS(Ditto):
    """Declaration of DittoRS, Ditto with restricted softmax for the common model."""

    name = "dittors"
    title = "Ditto with restricted softmax for the common model"
    citation = CITATION
    Config = DittoRSConfig
    config: DittoRSConfig

    @override
    def shared_loss(self, silo: SiloContext) -> Loss:
        """Cross-entropy of s_c z_c."""
        scales = class_scales(class_counts(silo), self.config.alpha, SCALINGS[self.config.variant])
        return restricted_loss(silo, scales)
