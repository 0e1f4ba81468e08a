"""FedConcat-ID: FedConcat whose label distributions are inferred from the silos' models, so that none is disclosed.

Diao, Li, He, AAAI 2024, "FedConcat-ID": after one round on the common initial model, the aggregator shows random
inputs to every silo's model; the mean of its answers stands in for the silo's label distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsilo.methods.fedconcat import FedConcat, FedConcatServer
from fedsilo.methods.interface import Assignment, Exchange, Phase, ServerContext, Step, Updates
from fedsilo.methods.pieces import distributions
from fedsilo.methods.state import State


class FedConcatIDServer(FedConcatServer):
    """Stage 1 from models; the rest as FedConcat."""

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """The common initial model before there are clusters."""
        if not state.values["member"]:
            return {silo: Assignment({"model": "initial"}) for silo in silos}
        return super().assign(job, state, exchange, silos)

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """After the first round: infer, cluster, and in the released form keep that round's models."""
        if state.values["member"]:
            return super().aggregate(job, state, exchange, updates)
        state = self.form_clusters(job, state, distributions.from_models(job, updates))
        if self.config.variant == "paper":
            return state
        return self.train_encoders(job, state, exchange, updates)


class FedConcatID(FedConcat):
    """Declaration of FedConcat-ID."""

    name = "fedconcat-id"
    title = "FedConcat with label distributions inferred from models"

    def steps(self) -> Mapping[str, Step]:
        """As FedConcat, without the counts."""
        return {name: step for name, step in super().steps().items() if name != "distribution"}

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

    def server(self) -> FedConcatIDServer:
        """Stages 1 to 3 without counts."""
        return FedConcatIDServer(self.config)
