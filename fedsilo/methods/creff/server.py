"""CReFF at the aggregator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.methods.components.classifiers import new_classifier
from fedsilo.methods.creff.config import CReFFConfig
from fedsilo.methods.creff.federated_features import match, retrain
from fedsilo.methods.creff.gradients import mean_gradients
from fedsilo.methods.interface import Assignment, Exchange, ServerContext, Snapshot
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import State, Tree


@dataclass(frozen=True)
class CReFFServer:
    """CReFF's server half, which averages the silos' models and re-trains the classifier on federated features.

    Trees: `model` (u, v), `head` (v-hat) and `features` S, (C, m, d).
    """

    config: CReFFConfig

    def start(self, job: ServerContext) -> State:
        """S ~ N(0, 1), and a random head of its own, as in the released code: not that of the model."""
        size = (job.signature.classes, self.config.features_per_class, job.signature.feature)
        features = np.random.default_rng(job.seed("features")).standard_normal(size, dtype=np.float32)
        return State(
            {"model": job.initial_model(), "head": _new_head(job, 0), "features": {"features": features}}
        )

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Two models in one broadcast: w, and v-hat, for which the gradients are asked."""
        return {silo: Assignment({"model": "model", "head": "head"}) for silo in silos}

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The aggregator's part of Algorithm 1."""
        model = sums.mean("model")  # w <- sum of n_k / n w_k, eq. 2
        wanted = mean_gradients(sums, self.config.released)  # g_c, eq. 4
        head = state.tree("head")
        features = match(self.config, state.tree("features")["features"], head, wanted)  # S, eq. 5 and 6
        if self.config.released:
            head = _new_head(job, exchange.round)
        head = retrain(self.config, features, head, job.seed("re-training", exchange.round))  # v-hat, eq. 7
        return State({"model": model, "head": head, "features": {"features": features}})

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """Extractor u of w and the re-trained head."""
        return Snapshot({**state.tree("model"), **state.tree("head")})


def _new_head(job: ServerContext, round: int) -> Tree:
    """A random linear layer, with a bias where the job's model has one."""
    bias = any(tensor.name == "classifier.bias" for tensor in job.signature.tensors)
    return new_classifier(job.signature.feature, job.signature.classes, job.seed("head", round), bias)
