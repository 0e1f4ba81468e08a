"""Declaration of FedBR with its settings and what silos send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.fedbr.config import LAYERS, THETA, FedBRConfig
from fedsilo.methods.interface import ServerHalf, SiloStep
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import Scalar
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.methods.traits import AveragingTraits, StateTraits, TrainingTraits
from fedsilo.wire import ModelSignature


class FedBR(OneModel):
    """Declaration of FedBR, federated learning with local learning bias reduction."""

    name = "fedbr"
    title = "Federated learning with local learning bias reduction"
    use_when = "inputs differ from silo to silo, beside a job of fedavg that it must beat"
    citation = (
        "Y. Guo, X. Tang, T. Lin. FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias "
        "Reduction. ICML 2023."
    )
    keeps = StateTraits(
        "the model, the projection, and for mixtures the proxies: means of uniform noise",
        "nothing; its pseudo-data follow from its examples and its seed",
    )
    models = JobModels(SharedModel(whole="its losses train encoder and classifier against each other"))
    Config = FedBRConfig
    averaging = AveragingTraits("uniform")
    config: FedBRConfig

    @property
    @override
    def training(self) -> TrainingTraits:
        """In the released code, where the job counts steps, the first round is a single one."""
        return TrainingTraits(
            refuses_float16="whose adversary takes steps without the scale of the loss",
            data_parallel=False,  # its loss takes a step of its own, on an adversary that no other process has
            sends_after="one step" if self.config.variant == "released" else "all steps",
        )

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model, and the projection where there is a contrast."""
        theta = tuple(Payload("model", THETA + name, shape) for name, shape in LAYERS.items())
        return {"train": Step((Payload("model"), *(theta if self.config.contrast_weight else ())), (LOSS,))}

    @override
    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """`projected` = 2 d, width of the projection's hidden layers."""
        return {**super().dimensions(signature, settings), "projected": 2 * signature.feature}

    @override
    def server(self) -> ServerHalf[Sums]:
        from fedsilo.methods.fedbr.server import FedBRServer

        return FedBRServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Steps of theta up and of phi and omega down."""
        from fedsilo.methods.fedbr.silo import train

        return {"train": partial(train, config=self.config)}
