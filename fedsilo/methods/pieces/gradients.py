"""Mean gradients of a classifier per class: what CReFF's silos send beside their model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedsilo.methods.interface import Reply, SiloContext, SiloTask, Updates
from fedsilo.methods.pieces.local import train_model
from fedsilo.methods.state import State

DRAWS, DRAWN = 10, 32
"""Released code: the gradient of a class is the mean over 10 draws of at most 32 of its samples."""


@dataclass(frozen=True)
class TrainWithGradients:
    """Gradients of the downloaded head under the downloaded extractor, then ordinary local training.

    :param released: random draws per class instead of the mean over all its samples.
    """

    released: bool

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """The reply of local training, with the gradients beside the model."""
        from fedsilo.learning.evaluation import features_of

        features = features_of(silo.model(task.trees["model"]), silo.train)
        labels = silo.train.labels.cpu().numpy()
        gradients: dict[str, np.ndarray] = {}
        support: dict[str, int] = {}
        for label in range(silo.signature.classes):
            members = features[labels == label]
            if len(members) < silo.min_samples_per_class:
                continue
            weight, bias = self.gradient(
                members, label, task.trees["head"], silo.seed("draws", task.round, label)
            )
            gradients |= {f"gradient.weight/{label}": weight, f"gradient.bias/{label}": bias}
            support |= {f"gradient.weight/{label}": len(members), f"gradient.bias/{label}": len(members)}
        trained = train_model(silo, task, private)
        return replace(trained, tensors={**trained.tensors, **gradients}, support=support)

    def gradient(
        self, members: np.ndarray, label: int, head: Mapping[str, np.ndarray], seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(C, d) and (C,): mean over the class's features, (n, d), of the cross-entropy's gradient."""
        import torch

        from fedsilo.learning.feature_matching import class_gradients

        groups = [members]
        if self.released:
            rng = np.random.default_rng(seed)
            groups = [rng.permutation(members)[:DRAWN] for _ in range(DRAWS)]
        weight, bias = torch.tensor(head["classifier.weight"]), torch.tensor(bias_of(head))
        stacked = torch.tensor(np.stack(groups))
        found = class_gradients(stacked, torch.full((len(groups),), label), weight, bias)
        return found[0].mean(dim=0).numpy(), found[1].mean(dim=0).numpy()


def bias_of(head: Mapping[str, np.ndarray]) -> np.ndarray:
    """The head's bias (C,), zeros where it has none."""
    return head.get("classifier.bias", np.zeros(len(head["classifier.weight"]), np.float32))


def mean_gradients(updates: Updates) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Class -> gradients averaged over the silos that sent it, every silo alike (eq. 4)."""
    names = [name for silo in updates.silos for name in updates.names(silo, "averaged_gradients")]
    sums = updates.weighted_sum("averaged_gradients", dict.fromkeys(updates.silos, 1.0))
    found = {}
    for label in sorted({int(name.rpartition("/")[2]) for name in names}):
        pair = (f"gradient.weight/{label}", f"gradient.bias/{label}")
        if all(name in sums for name in pair):
            weight, bias = (sums[name] / names.count(name) for name in pair)
            found[label] = (weight.astype(np.float32), bias.astype(np.float32))
    return found
