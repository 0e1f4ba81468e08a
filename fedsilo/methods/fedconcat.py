"""FedConcat and FedConcat-ID: clusters of similar silos train encoders, which are then concatenated.

Diao, Li, He, "Exploiting Label Skews in Federated Learning with Model Concatenation", AAAI 2024: stage 1 clusters
the silos by label distribution, stage 2 is FedAvg inside each cluster, stage 3 trains one linear classifier on the
concatenated features of all encoders, which stay fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.api.job import ModelSpec
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Payload,
    Phase,
    ServerContext,
    ServerHalf,
    SiloStep,
    Snapshot,
    Step,
    Updates,
)
from fedsilo.methods.method import Method
from fedsilo.methods.pieces import clusters, concatenation, distributions, linear_probe
from fedsilo.methods.pieces.concatenation import ConcatenationConfig
from fedsilo.methods.pieces.local import PlainTraining
from fedsilo.methods.state import Scalar, State
from fedsilo.wire import ModelSignature


@dataclass(frozen=True)
class FedConcatServer:
    """Stages 1 to 3 at the aggregator. Trees: `cluster/i`, `classifier`; values: `clusters`, `member`."""

    config: ConcatenationConfig

    def start(self, job: ServerContext) -> State:
        """All clusters will begin from the same initial weights."""
        return State({"initial": job.initial_model()}, {"clusters": 1, "member": {}})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Nothing in stage 1, its cluster's model to each silo in stage 2, all of them in stage 3.

        Each encoder comes with its cluster's classifier, as it was trained: the same blob, by content.
        """
        del job
        if exchange.phase.step == "distribution":
            return {silo: Assignment() for silo in silos}
        if exchange.phase.step == "train":
            return {silo: Assignment({"model": clusters.tree_of(state, silo)}) for silo in silos}
        trees = {name: name for name in (*clusters.trees(state.trees), "classifier")}
        settings: dict[str, Scalar] = {"clusters": state.values["clusters"]}
        return {silo: Assignment(trees, settings) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Cluster, average inside each cluster, or average the classifier."""
        if exchange.phase.step == "distribution":
            return self.form_clusters(job, state, distributions.from_counts(job, updates))
        if exchange.phase.step == "classify":
            rule = "uniform" if self.config.variant == "released" else None
            mean = job.mean(updates, "model", weights=job.spec.aggregation.weights or rule)
            return state.with_trees(classifier=mean)
        return self.train_encoders(job, state, exchange, updates)

    def form_clusters(self, job: ServerContext, state: State, rows: Mapping[str, np.ndarray]) -> State:
        """Stage 1: k-means on the rows P_k; every cluster starts from the initial weights."""
        return clusters.begin(state, clusters.cluster_silos(job, self.config, rows))

    def train_encoders(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Stage 2: FedAvg inside each cluster; after its last round the large classifier begins."""
        state = clusters.average_inside(job, state, updates)
        if exchange.phase_round < exchange.phase_rounds:
            return state
        return concatenation.with_classifier(job, state, self.config.warm_start)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """Concatenated encoders and classifier; before stage 3 the classifier sums the clusters' logits."""
        return concatenation.snapshot(state)


class FedConcat(Method):
    """Declaration of FedConcat."""

    name = "fedconcat"
    title = "Concatenated encoders of silos clustered by label distribution"
    citation = (
        "Y. Diao, Q. Li, B. He. Exploiting Label Skews in Federated Learning with Model Concatenation. "
        "AAAI 2024."
    )
    at_aggregator = "a model per cluster, the large classifier, and which silo is in which cluster"
    in_silo = "features of its examples under the fixed encoders, in stage 3"
    Config = ConcatenationConfig
    config: ConcatenationConfig

    def steps(self) -> Mapping[str, Step]:
        """Counts once, whole models in stage 2, the large classifier in stage 3."""
        return {
            "distribution": Step((Payload("class_counts", "count", (), "int64", per_class=True),)),
            "train": Step((Payload("model"),), ("loss",)),
            "classify": linear_probe.STEP,
        }

    def phases(self) -> tuple[Phase, ...]:
        """One exchange of counts, then T_e and T_c rounds."""
        return (
            Phase("distribution", 1, "distribution", everyone=True),
            Phase("encoders", self.config.encoder_rounds, "train"),
            Phase("classifier", self.config.classifier_rounds, "classify"),
        )

    def server(self) -> ServerHalf:
        """Stages 1 to 3."""
        return FedConcatServer(self.config)

    def silo(self) -> Mapping[str, SiloStep]:
        """Counts, the cluster's model, the classifier on the fixed encoders' features."""
        return {
            "distribution": distributions.disclose,
            "train": PlainTraining(),
            "classify": linear_probe.LinearProbe(self.config.variant, self.config.classifier_weight_decay),
        }

    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """`stacked`, the width of the concatenated features, beside the usual ones."""
        stacked = concatenation.dimensions(signature, self.config, settings)
        return {**super().dimensions(signature, settings), **stacked}

    def architecture(self, settings: Mapping[str, Scalar]) -> ModelSpec:
        """K encoders of the job's architecture side by side, one classifier."""
        return concatenation.architecture(self.spec, settings)

    def check(self) -> list[tuple[str, object, str, str]]:
        """Rounds that add up, and no more clusters than silos."""
        return concatenation.check(self.spec, self.config)
