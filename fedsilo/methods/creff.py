"""CReFF: a classifier re-trained at the aggregator on federated features.

Shang, Lu, Huang, Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features", IJCAI 2022, Algorithm 1. Silos send their model and, for each class, the mean gradient of the
re-trained classifier; the aggregator moves its features until they have the same gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Payload,
    Phase,
    ServerContext,
    SiloStep,
    Snapshot,
    Step,
    Updates,
)
from fedsilo.methods.method import Method
from fedsilo.methods.pieces import gradients
from fedsilo.methods.pieces.classifiers import new_classifier
from fedsilo.methods.pieces.federated_features import CReFFConfig, match, retrain
from fedsilo.methods.state import State, Tree


@dataclass(frozen=True)
class CReFFServer:
    """Trees: `model` (u, v), `head` (v-hat) and `features` S, (C, m, d)."""

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

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """The aggregator's part of Algorithm 1."""
        model = job.mean(updates, "model")  # w <- sum of n_k / n w_k, eq. 2
        wanted = gradients.mean_gradients(updates, self.config.released)  # g_c, eq. 4
        head = state.tree("head")
        features = match(self.config, state.tree("features")["features"], head, wanted)  # S, eq. 5 and 6
        if self.config.released:
            head = _new_head(job, exchange.round)
        head = retrain(self.config, features, head, job.seed("re-training", exchange.round))  # v-hat, eq. 7
        return State({"model": model, "head": head, "features": {"features": features}})

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """Extractor u of w and the re-trained head."""
        return Snapshot({**state.tree("model"), **state.tree("head")})


class CReFF(Method):
    """Declaration of CReFF."""

    name = "creff"
    title = "Classifier re-training with federated features"
    citation = (
        "X. Shang, Y. Lu, G. Huang, H. Wang. Federated Learning on Heterogeneous and Long-Tailed Data via Classifier "
        "Re-Training with Federated Features. IJCAI 2022."
    )
    at_aggregator = "the model, the re-trained classifier and the federated features"
    in_silo = "nothing"
    Config = CReFFConfig
    config: CReFFConfig

    def steps(self) -> Mapping[str, Step]:
        """The model, and per class the mean gradient of the head."""
        return {"train": Step((Payload("model"), *gradients.payloads(self.config.released)), ("loss",))}

    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    def server(self) -> CReFFServer:
        """Features and head at the aggregator."""
        return CReFFServer(self.config)

    def silo(self) -> Mapping[str, SiloStep]:
        """Gradients of the head first, then local training of the model."""
        return {"train": gradients.TrainWithGradients(self.config.released)}


def _new_head(job: ServerContext, round: int) -> Tree:
    """A random linear layer, with a bias where the job's model has one."""
    bias = any(tensor.name == "classifier.bias" for tensor in job.signature.tensors)
    return new_classifier(job.signature.feature, job.signature.classes, job.seed("head", round), bias)
