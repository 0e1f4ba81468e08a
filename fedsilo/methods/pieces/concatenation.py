"""Model concatenation: the clusters' encoders side by side, one linear classifier on all their features.

Diao, Li, He, AAAI 2024, stage 3 of FedConcat at the aggregator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.methods.interface import ServerContext, Snapshot
from fedsilo.methods.pieces import clusters
from fedsilo.methods.pieces.classifiers import new_classifier
from fedsilo.methods.pieces.clusters import ClusterConfig
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.wire import ModelSignature


class ConcatenationConfig(ClusterConfig):
    """Clusters, rounds, and how the classifier on all features is trained."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: stage 3 is FedAvg by samples over localEpochs [paper, Algorithm 1]. released: three "
        "mini-batches, uniform [released code].",
    )
    encoder_rounds: int = Field(
        default=50, ge=1, description="Rounds of stage 2, T_e [released code, run.sh]."
    )
    classifier_rounds: int = Field(
        default=1000, ge=1, description="Rounds of stage 3, T_c [released code, run.sh]."
    )
    warm_start: bool = Field(
        default=False,
        description="Start stage 3 from the clusters' classifiers side by side, biases summed [released code, for "
        "CIFAR-100 and Tiny-ImageNet].",
    )
    classifier_weight_decay: float | None = Field(
        default=None,
        ge=0,
        description="Weight decay of stage 3 when not null [released code: 1e-5]; else the job's, or 1e-5 if released.",
    )


def dimensions(
    signature: ModelSignature, config: ConcatenationConfig, settings: Mapping[str, Scalar]
) -> dict[str, int]:
    """`stacked` = K d, the width of the concatenated features; K is in the task, and at most the job's."""
    given = settings.get("clusters", config.clusters)
    bounded = given if isinstance(given, int) and 1 <= given <= config.clusters else config.clusters
    return {"stacked": bounded * signature.feature}


def architecture(spec: FederatedJobSpec, settings: Mapping[str, Scalar]) -> ModelSpec:
    """The job's encoder as often as there are clusters, and one classifier."""
    base = spec.model.model_dump(by_alias=True, mode="json")
    return ModelSpec(name="concatenated", config={"encoders": settings["clusters"], "base": base})


def check(spec: FederatedJobSpec, config: ConcatenationConfig) -> list[tuple[str, object, str, str]]:
    """Rounds that add up, and no more clusters than silos."""
    faults: list[tuple[str, object, str, str]] = []
    rounds = config.encoder_rounds + config.classifier_rounds
    if rounds != spec.training.rounds:
        problem = f"is not encoderRounds + classifierRounds = {rounds}"
        faults.append(("spec.training.rounds", spec.training.rounds, problem, f"use {rounds}"))
    silos = len(spec.silos.refs)
    if silos and config.clusters > silos:
        problem = f"is more than the {silos} silos of spec.silos.refs"
        faults.append(("spec.method.config.clusters", config.clusters, problem, f"use {silos} or less"))
    return faults


def with_classifier(job: ServerContext, state: State, warm: bool) -> State:
    """The state with stage 3's first classifier: PyTorch's initialisation, or the clusters' own classifiers."""
    started = warm_classifier(state) if warm else fresh_classifier(job, state)
    return state.with_trees(classifier=started)


def warm_classifier(state: State) -> Tree:
    """Clusters' classifiers side by side, (C, K d), and the sum of their biases: the sum of their logits."""
    parts = [state.tree(name) for name in clusters.trees(state.trees)]
    weight = np.concatenate([part["classifier.weight"] for part in parts], axis=1)
    biases = [part["classifier.bias"] for part in parts if "classifier.bias" in part]
    bias = np.sum(biases, axis=0) if biases else np.zeros(len(weight))
    return {"classifier.weight": weight, "classifier.bias": np.asarray(bias, np.float32)}


def fresh_classifier(job: ServerContext, state: State) -> Tree:
    """A linear layer (C, K d) as PyTorch initialises it."""
    width = state.values["clusters"] * job.signature.feature
    return new_classifier(width, job.signature.classes, job.seed("classifier"))


def snapshot(state: State) -> Snapshot:
    """All encoders in cluster order and the classifier; before stage 3 the sum of the clusters' logits."""
    if "initial" in state.trees:
        state = clusters.begin(state, {"": 0})
    encoders = {
        f"encoder.{number}.{name.removeprefix('encoder.')}": array
        for number, tree in enumerate(clusters.trees(state.trees))
        for name, array in state.tree(tree).items()
        if name.startswith("encoder.")
    }
    classifier = state.tree("classifier") if "classifier" in state.trees else warm_classifier(state)
    return Snapshot(encoders | classifier, {"clusters": state.values["clusters"]})
