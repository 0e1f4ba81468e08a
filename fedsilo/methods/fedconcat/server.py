"""FedConcat at the aggregator, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.methods.fedconcat import cluster_models, concatenation
from fedsilo.methods.fedconcat.clustering import cluster_silos
from fedsilo.methods.fedconcat.config import StagesConfig
from fedsilo.methods.fedconcat.distributions import distributions_of
from fedsilo.methods.interface import Assignment, Exchange, ServerContext, Snapshot
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import Scalar, State


@dataclass(frozen=True)
class FedConcatServer:
    """Stages 1 to 3 at the aggregator. Trees: `cluster/i`, `classifier`; values: `clusters`, `member`."""

    config: StagesConfig

    def start(self, job: ServerContext) -> State:
        """All clusters will begin from the same initial weights."""
        return State({"initial": job.initial_model()}, {"clusters": 1, "member": {}})

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Assignments by stage, without a model in stage 1, with the cluster's in stage 2, with all of them in stage 3.

        Each encoder comes with its cluster's classifier, as it was trained: the same blob, by content.
        """
        del job
        if exchange.phase.step == "distribution":
            return {silo: Assignment() for silo in silos}
        if exchange.phase.step == "train":
            return {silo: Assignment({"model": cluster_models.tree_of(state, silo)}) for silo in silos}
        trees = {name: name for name in (*cluster_models.trees(state.trees), "classifier")}
        settings: dict[str, Scalar] = {"clusters": state.values["clusters"]}
        return {silo: Assignment(trees, settings) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """Cluster, average inside each cluster, or average the classifier."""
        if exchange.phase.step == "distribution":
            return self.form_clusters(job, state, distributions_of(job, updates))
        if exchange.phase.step == "classify":
            rule = "uniform" if self.config.variant == "released" else None
            mean = updates.mean("model", weights=job.spec.aggregation.weights or rule)
            return state.with_trees(classifier=mean)
        return self.train_encoders(job, state, exchange, updates)

    def form_clusters(self, job: ServerContext, state: State, rows: Mapping[str, np.ndarray]) -> State:
        """State after stage 1, k-means on the label distributions P_k.

        Every cluster starts from the initial weights.
        """
        return cluster_models.begin(state, cluster_silos(job, self.config, rows))

    def train_encoders(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """State after a round of FedAvg inside each cluster (stage 2).

        After the last of these rounds the large classifier begins.
        """
        state = cluster_models.average_inside(state, updates)
        if exchange.phase_round < exchange.phase_rounds:
            return state
        return concatenation.with_classifier(job, state, self.config.warm_start)

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """Concatenated encoders and classifier; before stage 3 the classifier sums the clusters' logits."""
        return concatenation.snapshot(state)
