"""Declaration of DANN with what silos send and how many there are to tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.api.common import MAX_SILOS
from fedsilo.methods.dann.config import DISCRIMINATOR, LAYERS, NUMBER, SILOS, DANNConfig
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import Exchange, ServerHalf, SiloStep
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import Scalar
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.methods.traits import AveragingTraits, StateTraits
from fedsilo.wire import ModelSignature


class DANN(OneModel):
    """Declaration of DANN, domain-adversarial training with silos as domains."""

    name = "dann"
    title = "Domain-adversarial federated training"
    citation = (
        "Y. Ganin, E. Ustinova, H. Ajakan, P. Germain, H. Larochelle, F. Laviolette, M. Marchand, V. Lempitsky. "
        "Domain-Adversarial Training of Neural Networks. JMLR 2016."
    )
    keeps = StateTraits("the model and the discriminator")
    models = JobModels(SharedModel(whole="its discriminator is trained against the whole encoder"))
    Config = DANNConfig
    averaging = AveragingTraits("uniform")
    config: DANNConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model and the discriminator."""
        layers = (Payload("model", DISCRIMINATOR + name, shape) for name, shape in LAYERS.items())
        return {"train": Step((Payload("model"), *layers), (LOSS,))}

    @override
    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """`hidden`, and `silos`, the job's: where it does not name them, their number is in the task."""
        given, named = settings.get(SILOS), len(self.spec.silos.refs)
        chosen = MAX_SILOS
        if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MAX_SILOS:
            chosen = given
        sizes = {"hidden": self.config.hidden, "silos": named or chosen}
        return {**super().dimensions(signature, settings), **sizes}

    @override
    def silo_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        """A silo's number, by which the discriminator tells silos apart."""
        refs = [str(ref) for ref in self.spec.silos.refs]
        return {NUMBER: refs.index(silo)} if exchange.phase.step == "train" else {}

    @override
    def server(self) -> ServerHalf[Sums]:
        from fedsilo.methods.dann.server import DANNServer

        return DANNServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Steps of the discriminator, and of the model against it."""
        from fedsilo.methods.dann.silo import train

        return {"train": partial(train, config=self.config)}
