"""Stage 3 of FedConcat: fixed encoders side by side, one linear classifier on all their features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsilo.manifests.job import FederatedJobSpec, ModelSpec
from fedsilo.methods.interface import (
    Payload,
    Reply,
    ServerContext,
    SiloContext,
    SiloTask,
    Snapshot,
    Step,
)
from fedsilo.methods.pieces import clusters
from fedsilo.methods.pieces.classifiers import new_classifier
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.wire import ModelSignature

if TYPE_CHECKING:
    from fedsilo.learning.training import LocalTraining

STEP = Step(
    (
        Payload("model", "classifier.weight", ("classes", "stacked")),
        Payload("model", "classifier.bias", ("classes",)),
    ),
    ("loss",),
)

RELEASED_BATCHES = 3
"""Mini-batches of a silo in one round of stage 3, released code."""

RELEASED_WEIGHT_DECAY = 1e-5


def dimensions(signature: ModelSignature, config: Any, settings: Mapping[str, Scalar]) -> dict[str, int]:
    """`stacked` = K d, the width of the concatenated features; K is in the task, and at most the job's."""
    given = settings.get("clusters", config.clusters)
    bounded = given if isinstance(given, int) and 1 <= given <= config.clusters else config.clusters
    return {"stacked": bounded * signature.feature}


def architecture(spec: FederatedJobSpec, settings: Mapping[str, Scalar]) -> ModelSpec:
    """The job's encoder as often as there are clusters, and one classifier."""
    base = spec.model.model_dump(by_alias=True, mode="json")
    return ModelSpec(name="concatenated", config={"encoders": settings["clusters"], "base": base})


def check(spec: FederatedJobSpec, config: Any) -> list[tuple[str, object, str, str]]:
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


@dataclass(frozen=True)
class LocalClassifier:
    """Local training of the classifier alone.

    The encoders do not change any more, so the features of the silo's examples are computed once, in evaluation
    mode, and kept in its private state. (The released code leaves the encoders in training mode, which lets
    BatchNorm drift across silos inside one process; no real federation can share that.)

    :param weight_decay: of this stage; None is the job's, or the released code's.
    """

    variant: str
    weight_decay: float | None

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """One round of the silo: the classifier's tensors, and the features for the rounds to come."""
        import torch

        from fedsilo.learning.examples import Examples
        from fedsilo.learning.models import Model, load_tree, to_tree
        from fedsilo.learning.training import fit

        private = private if "features" in private.trees else _with_features(silo, task, private)
        device = silo.train.labels.device
        features = torch.tensor(private.tree("features")["features"], device=device)
        model = Model(torch.nn.Identity(), torch.nn.Linear(features.shape[1], silo.signature.classes))
        load_tree(model, task.trees["classifier"])
        plan = self.plan(silo.local_training(task))
        report = fit(model.to(device), Examples(features, silo.train.labels), plan)
        return Reply(to_tree(model), len(silo.train), {"loss": report.loss}, private=private)

    def plan(self, plan: LocalTraining) -> LocalTraining:
        """The job's local training; in the released form at most three mini-batches."""
        if self.variant == "released":
            plan = replace(
                plan, epochs=1, min_steps=1, max_steps=RELEASED_BATCHES, weight_decay=RELEASED_WEIGHT_DECAY
            )
        return plan if self.weight_decay is None else replace(plan, weight_decay=self.weight_decay)


def _with_features(silo: SiloContext, task: SiloTask, private: State) -> State:
    """The private state with F(x) = [E_1(x); ...; E_K(x)] of every training example, (n, K d)."""
    from fedsilo.learning.evaluation import features_of

    encoders = clusters.trees(task.trees)
    parts = [features_of(silo.model(task.trees[name]), silo.train) for name in encoders]
    return private.with_trees(features={"features": np.concatenate(parts, axis=1)})
