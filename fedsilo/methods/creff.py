"""CReFF: a classifier re-trained at the aggregator on federated features.

Shang, Lu, Huang, Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features", IJCAI 2022, Algorithm 1. Silos send their model and, for each class, the mean gradient of the
re-trained classifier; the aggregator moves its features until they have the same gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from fedsilo.manifests.job import FederatedJobSpec
from fedsilo.methods.interface import (
    Assignment,
    Exchange,
    Method,
    MethodConfig,
    Payload,
    Phase,
    ServerContext,
    SiloStep,
    Snapshot,
    Step,
    Updates,
)
from fedsilo.methods.pieces.gradients import TrainWithGradients, bias_of, mean_gradients
from fedsilo.methods.state import State, Tree

if TYPE_CHECKING:
    from fedsilo.learning.linear import LinearTraining


class CReFFConfig(MethodConfig):
    """Settings; defaults are the paper's, Section 5.1."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: eq. 6 as printed, 300 steps of re-training from the last classifier. released: rows "
        "summed with the bias as one more, 300 epochs from a new random classifier.",
    )
    features_per_class: int = Field(default=100, ge=1, description="Federated features per class, m.")
    match_steps: int = Field(default=100, ge=1, description="Steps of feature optimisation in a round, I.")
    feature_learning_rate: float = Field(default=0.1, gt=0, description="Learning rate of the features.")
    retrain: int = Field(default=300, ge=1, description="Re-training, J: steps (paper) or epochs (released).")
    retrain_learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="Learning rate of re-training; 0.1 (paper) or 0.01 (released) when null.",
    )
    retrain_batch_size: int = Field(default=32, ge=1, description="Features in a step of re-training.")


@dataclass(frozen=True)
class CReFFServer:
    """Trees: `model` (u, v), `head` (v-hat) and `features` S, (C, m, d)."""

    config: CReFFConfig

    def start(self, job: ServerContext) -> State:
        """S ~ N(0, 1), and a random head of its own: not that of the model."""
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
        """Average models (eq. 2) and gradients (eq. 4), move S (eq. 5, 6), re-train the head on all of S (eq. 7)."""
        features = self.match(state, mean_gradients(updates))
        head = self.retrain(job, state.tree("head"), features, exchange.round)
        return State({"model": job.mean(updates, "model"), "head": head, "features": {"features": features}})

    def match(self, state: State, gradients: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """S after I steps; a class that no silo disclosed keeps its features."""
        import torch

        from fedsilo.learning.feature_matching import match_features

        features = np.array(state.tree("features")["features"])
        if not gradients:
            return features
        held = sorted(gradients)
        head = state.tree("head")
        wanted = tuple(torch.tensor(np.stack([gradients[label][part] for label in held])) for part in (0, 1))
        features[held] = match_features(
            torch.tensor(features[held]),
            torch.tensor(held),
            (wanted[0], wanted[1]),
            torch.tensor(head["classifier.weight"]),
            torch.tensor(bias_of(head)),
            steps=self.config.match_steps,
            lr=self.config.feature_learning_rate,
            released=self.config.variant == "released",
        ).numpy()
        return features

    def retrain(self, job: ServerContext, head: Tree, features: np.ndarray, round: int) -> Tree:
        """v-hat trained on S and its labels, from the last v-hat (paper) or from a new one (released)."""
        from fedsilo.learning.linear import train_classifier

        if self.config.variant == "released":
            head = _new_head(job, round)
        classes, amount, width = features.shape
        labels = np.repeat(np.arange(classes), amount)
        plan = self.plan(job.seed("re-training", round))
        rows = features.reshape(-1, width)
        return train_classifier(head["classifier.weight"], head.get("classifier.bias"), rows, labels, plan)

    def plan(self, seed: int) -> LinearTraining:
        """300 steps at 0.1 (paper) or 300 epochs at 0.01 (released), without momentum."""
        from fedsilo.learning.linear import LinearTraining

        released, given = self.config.variant == "released", self.config.retrain_learning_rate
        return LinearTraining(
            lr=given or (0.01 if released else 0.1),
            epochs=self.config.retrain,
            max_steps=None if released else self.config.retrain,
            batch_size=self.config.retrain_batch_size,
            seed=seed,
        )

    def model(self, job: ServerContext, state: State) -> Snapshot:
        """Extractor u of w and the re-trained head."""
        head = state.tree("head")
        return Snapshot({name: head.get(name, array) for name, array in state.tree("model").items()})


class CReFF(Method):
    """Declaration of CReFF."""

    name = "creff"
    title = "Classifier re-training with federated features"
    citation = (
        "X. Shang, Y. Lu, G. Huang, H. Wang. Federated Learning on Heterogeneous and Long-Tailed Data via Classifier "
        "Re-Training with Federated Features. IJCAI 2022."
    )
    Config = CReFFConfig

    def steps(self, config: CReFFConfig) -> Mapping[str, Step]:
        """The model, and per class the mean gradient of the head."""
        weight = Payload("averaged_gradients", "gradient.weight", ("classes", "feature"), per_class=True)
        bias = Payload("averaged_gradients", "gradient.bias", ("classes",), per_class=True)
        return {"train": Step((Payload("model"), weight, bias), ("loss",))}

    def phases(self, spec: FederatedJobSpec, config: CReFFConfig) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", spec.training.rounds, "train"),)

    def server(self, config: CReFFConfig) -> CReFFServer:
        """Features and head at the aggregator."""
        return CReFFServer(config)

    def silo(self, config: CReFFConfig) -> Mapping[str, SiloStep]:
        """Gradients of the head first, then local training of the model."""
        return {"train": TrainWithGradients(released=config.variant == "released")}


def _new_head(job: ServerContext, round: int) -> Tree:
    """A random linear layer, with a bias where the job's model has one."""
    import torch

    from fedsilo.learning.models import to_tree

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed("head", round))
        bias = any(tensor.name == "classifier.bias" for tensor in job.signature.tensors)
        layer = torch.nn.Linear(job.signature.feature, job.signature.classes, bias=bias)
    return {f"classifier.{name}": array for name, array in to_tree(layer).items()}


METHOD = CReFF()
