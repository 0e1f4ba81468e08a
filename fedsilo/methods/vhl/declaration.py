"""Declaration of VHL, virtual homogeneity learning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from typing_extensions import override

from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import SiloStep
from fedsilo.methods.traits import StateTraits, TrainingTraits
from fedsilo.methods.vhl.config import VHLConfig


class VHL(FedAvg):
    """Declaration of VHL, which differs from FedAvg in the silos' loss."""

    name = "vhl"
    title = "Virtual homogeneity learning"
    citation = (
        "Z. Tang, Y. Zhang, S. Shi, X. He, B. Han, X. Chu. Virtual Homogeneity Learning: Defending against Data "
        "Heterogeneity in Federated Learning. ICML 2022."
    )
    keeps = StateTraits(silo="nothing; virtual examples follow from the job's seed")
    Config = VHLConfig
    config: VHLConfig
    training = TrainingTraits(data_parallel=False)  # the contrast is one of whole batches

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on real and virtual examples and their alignment."""
        from fedsilo.methods.vhl.silo import train

        return {"train": partial(train, config=self.config)}
