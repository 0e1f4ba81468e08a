"""Declaration of Ratio Loss: what the aggregator reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import ServerHalf, SiloStep
from fedsilo.methods.method import PublicData
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.ratio_loss.config import RatioLossConfig
from fedsilo.methods.reading import Sums
from fedsilo.methods.traits import StateTraits


class RatioLoss(OneModel):
    """Declaration of Ratio Loss."""

    name = "ratio-loss"
    title = "Federated averaging with class weights monitored at the aggregator"
    citation = "L. Wang, S. Xu, X. Wang, Q. Zhu. Addressing Class Imbalance in Federated Learning. AAAI 2021."
    keeps = StateTraits("the model and the weights of the classes")
    Config = RatioLossConfig
    config: RatioLossConfig
    models = JobModels(SharedModel(whole="the aggregator trains copies of the model"))
    public_data: PublicData | None = "labelled examples"

    @override
    def server(self) -> ServerHalf[Sums]:
        """The average, and the weights for the next round."""
        from fedsilo.methods.ratio_loss.server import RatioLossServer

        return RatioLossServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Training by those weights."""
        from fedsilo.methods.ratio_loss.silo import train

        return {"train": partial(train, config=self.config)}
