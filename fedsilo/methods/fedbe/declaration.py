"""Declaration of FedBE with what the aggregator reads."""

from __future__ import annotations

from typing_extensions import override

from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.fedbe.config import FedBEConfig
from fedsilo.methods.interface import ServerHalf
from fedsilo.methods.method import PublicData
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Updates
from fedsilo.methods.traits import TaskTraits


class FedBE(OneModel):
    """Declaration of FedBE, averaging with Bayesian ensemble distillation."""

    name = "fedbe"
    title = "Federated averaging with Bayesian ensemble distillation"
    citation = (
        "H.-Y. Chen, W.-L. Chao. FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning. ICLR "
        "2021."
    )
    Config = FedBEConfig
    config: FedBEConfig
    tasks = TaskTraits(needs_features=False)
    models = JobModels(SharedModel(whole="the silos' models answer at the aggregator"))
    public_data: PublicData | None = "examples"

    @override
    def server(self) -> ServerHalf[Updates]:
        """The distribution, the ensemble and its distillation."""
        from fedsilo.methods.fedbe.server import FedBEServer

        return FedBEServer(self.config)
