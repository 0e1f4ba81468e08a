"""Mean gradients of a classifier per class: what CReFF's silos send beside their model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedsilo.methods.interface import Payload, Reply, SiloContext, SiloTask, Updates
from fedsilo.methods.pieces.local import train_model
from fedsilo.methods.state import State

DRAWS, DRAWN = 10, 32
"""Released code: the gradient of a class is the mean over 10 draws of at most 32 of its samples."""

WEIGHT, BIAS = "gradient.weight", "gradient.bias"


class Gradient(NamedTuple):
    """Of the cross-entropy of one class, with respect to the head's weight (C, d) and bias (C,)."""

    weight: np.ndarray
    bias: np.ndarray


def payloads(released: bool) -> tuple[Payload, ...]:
    """One gradient per class; that of the bias in the released form alone, since eq. 6 has no use for it."""
    weight = Payload("averaged_gradients", WEIGHT, ("classes", "feature"), per_class=True)
    bias = Payload("averaged_gradients", BIAS, ("classes",), per_class=True)
    return (weight, bias) if released else (weight,)


@dataclass(frozen=True)
class TrainWithGradients:
    """Gradients of the downloaded head under the downloaded extractor, then ordinary local training.

    :param released: random draws per class instead of the mean over all its samples, and the bias's gradient too. The
        released code also passes the images of each draw through one random DSA augmentation (differentiable Siamese
        augmentation: Zhao, Bilen, ICML 2021); here they are as they are.
    """

    released: bool

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """The reply of local training, with the gradients beside the model; a class below the minimum is left out."""
        from fedsilo.learning.evaluation import features_of

        features = features_of(silo.model(task.trees["model"]), silo.train)
        labels = silo.train.labels.cpu().numpy()
        gradients: dict[str, np.ndarray] = {}
        support: dict[str, int] = {}
        for label in range(silo.signature.classes):
            members = features[labels == label]
            if len(members) < silo.min_samples_per_class:
                continue
            seed = silo.seed("draws", task.round, label)
            found = self.gradient(members, label, task.trees["head"], seed)
            blocks = {WEIGHT: found.weight} | ({BIAS: found.bias} if self.released else {})
            gradients |= {f"{name}/{label}": array for name, array in blocks.items()}
            support |= {f"{name}/{label}": len(members) for name in blocks}
        trained = train_model(silo, task, private)
        return replace(trained, tensors={**trained.tensors, **gradients}, support=support)

    def gradient(
        self, members: np.ndarray, label: int, head: Mapping[str, np.ndarray], seed: int
    ) -> Gradient:
        """Mean over the class's features, (n, d), of the cross-entropy's gradient (eq. 3)."""
        import torch

        from fedsilo.learning.feature_matching import class_gradients

        groups = [members]
        if self.released:
            rng = np.random.default_rng(seed)
            groups = [rng.permutation(members)[:DRAWN] for _ in range(DRAWS)]
        weight, bias = torch.tensor(head["classifier.weight"]), torch.tensor(bias_of(head))
        stacked = torch.tensor(np.stack(groups))
        found = class_gradients(stacked, torch.full((len(groups),), label), weight, bias)
        return Gradient(found[0].mean(dim=0).numpy(), found[1].mean(dim=0).numpy())


def bias_of(head: Mapping[str, np.ndarray]) -> np.ndarray:
    """The head's bias (C,), zeros where it has none."""
    return head.get("classifier.bias", np.zeros(len(head["classifier.weight"]), np.float32))


def mean_gradients(updates: Updates, released: bool) -> dict[int, Gradient]:
    """Class -> gradient averaged over the silos that sent it, every silo alike (eq. 4).

    The bias's is zero where silos do not send it; a class of which one of the two is missing is left out.
    """
    names = [name for silo in updates.silos for name in updates.names(silo, "averaged_gradients")]
    sums = updates.weighted_sum("averaged_gradients", dict.fromkeys(updates.silos, 1.0))
    means = {name: (total / names.count(name)).astype(np.float32) for name, total in sums.items()}
    found = {}
    for label in sorted({int(name.rpartition("/")[2]) for name in names}):
        weight, bias = means.get(f"{WEIGHT}/{label}"), means.get(f"{BIAS}/{label}")
        if weight is not None and not released:
            bias = np.zeros(len(weight), np.float32)
        if weight is not None and bias is not None:
            found[label] = Gradient(weight, bias)
    return found
