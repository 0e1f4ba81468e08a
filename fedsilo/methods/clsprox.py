"""clsprox is federated averaging with a proximal term on the classifier only.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Section 3: one of the regularised classifiers that the paper compares its calibration with.

The loss has `mu` / 2 times the squared distance of the classifier to the given one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.proximal import proximal_loss
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.state import State


class ClsProxConfig(MethodConfig):
    """Settings of clsprox, the weight of its proximal term."""

    mu: float = Field(default=0.01, ge=0, description="Weight of the term [fedsilo: not printed].")


class ClsProx(FedAvg):
    """Declaration of clsprox, FedAvg with a proximal term on the classifier."""

    name = "clsprox"
    title = "Federated averaging with a proximal term on the classifier"
    citation = (
        "M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. No Fear of Heterogeneity: Classifier Calibration for "
        "Federated Learning with Non-IID Data. NeurIPS 2021."
    )
    models = JobModels(SharedModel(whole="a silo's classifier is drawn towards the aggregator's"))
    Config = ClsProxConfig
    config: ClsProxConfig

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy and (mu / 2) ||phi_k - phi||^2, phi being the classifier."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            loss = proximal_loss(silo, task.trees["model"], self.config.mu, part="classifier.")
            return train_model(silo, task, private, loss=loss)

        return {"train": train}
