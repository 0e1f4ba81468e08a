"""Stage 3 at the aggregator: the clusters' encoders side by side, one linear classifier on all their features."""

from __future__ import annotations

import numpy as np

from fedsilo.methods.components.classifiers import new_classifier
from fedsilo.methods.fedconcat import cluster_models
from fedsilo.methods.interface import ServerContext, Snapshot
from fedsilo.methods.state import State, Tree


def with_classifier(job: ServerContext, state: State, warm: bool) -> State:
    """The state with stage 3's first classifier: PyTorch's initialisation, or the clusters' own classifiers."""
    started = warm_classifier(state) if warm else fresh_classifier(job, state)
    return state.with_trees(classifier=started)


def warm_classifier(state: State) -> Tree:
    """Clusters' classifiers side by side, (C, K d), and the sum of their biases: the sum of their logits."""
    parts = [state.tree(name) for name in cluster_models.trees(state.trees)]
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
        state = cluster_models.begin(state, {"": 0})
    encoders = {
        f"encoder.{number}.{name.removeprefix('encoder.')}": array
        for number, tree in enumerate(cluster_models.trees(state.trees))
        for name, array in state.tree(tree).items()
        if name.startswith("encoder.")
    }
    classifier = state.tree("classifier") if "classifier" in state.trees else warm_classifier(state)
    return Snapshot(encoders | classifier, {"clusters": state.values["clusters"]})
