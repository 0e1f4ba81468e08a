"""FedRS is federated averaging with a restricted softmax in the silos.

Li, Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data", KDD 2021; as
equation 8 of Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes".
The scales are a silo's own: they follow from its classes and never leave it. Predictions use the logits unscaled.

A logit of a missing class is multiplied by `alpha`, and a bias of the classifier is scaled with its logit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.restricted_softmax import (
    Scaling,
    class_counts,
    class_scales,
    restricted_loss,
)
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State

SCALINGS: Mapping[str, Scaling] = {"paper": "mask", "released": "frequency", "complete": "share"}


class FedRSConfig(MethodConfig):
    """Settings of FedRS in a job's `spec.method.config`; the default is MAP's best."""

    variant: Literal["paper", "released", "complete"] = Field(
        default="paper",
        description="paper: alpha for missing classes, 1 for others. released: alpha + (1 - alpha) n_c / max n. "
        "complete: n_c / n, for silos with all classes [FedRS and MAP, eq. 8; released code; MAP, Table III].",
    )
    alpha: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="Scale of a missing class's logit; 1 is FedAvg [MAP: best of 0.1 to 0.9; FedRS: 0.5].",
    )


class FedRS(FedAvg):
    """Declaration of FedRS, which differs from FedAvg in the silos' loss."""

    name = "fedrs"
    title = "Federated averaging with restricted softmax"
    citation = (
        "X.-C. Li, D.-C. Zhan. FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data. "
        "KDD 2021."
    )
    Config = FedRSConfig
    config: FedRSConfig

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy of s_c z_c."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            scales = class_scales(class_counts(silo), self.config.alpha, SCALINGS[self.config.variant])
            return train_model(silo, task, private, loss=restricted_loss(silo, scales))

        return {"train": train}
