"""Declaration of FedConcat-ID, which is FedConcat without the exchange of counts."""

from __future__ import annotations

from typing_extensions import override

from fedsilo.methods.fedconcat.declaration import ConcatenationMethod
from fedsilo.methods.fedconcat_id.config import FedConcatIDConfig
from fedsilo.methods.interface import Phase, ServerHalf
from fedsilo.methods.reading import Updates


class FedConcatID(ConcatenationMethod):
    """Declaration of FedConcat-ID, whose label distributions are inferred from models."""

    name = "fedconcat-id"
    title = "FedConcat with label distributions inferred from models"
    Config = FedConcatIDConfig
    config: FedConcatIDConfig

    @override
    def phases(self) -> tuple[Phase, ...]:
        """The round from which distributions are inferred, then T_e and T_c rounds.

        Algorithm 1 begins the clusters anew after it (paper); the released code counts it as the first of T_e.
        """
        first = 1 if self.config.variant == "released" else 0
        return (
            Phase("encoders" if first else "inference", 1, "train", everyone=True),
            Phase("encoders", self.config.encoder_rounds - first, "train"),
            Phase("classifier", self.config.classifier_rounds, "classify"),
        )

    @override
    def server(self) -> ServerHalf[Updates]:
        """Stages 1 to 3 without counts."""
        from fedsilo.methods.fedconcat_id.server import FedConcatIDServer

        return FedConcatIDServer(self.config, self.config.probes)
