"""CReFF in the silo: gradients of the aggregator's classifier, then local training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedsilo.learning.evaluation import features_of
from fedsilo.methods.creff.config import BIAS, WEIGHT
from fedsilo.methods.creff.gradients import Gradient, bias_of, class_gradients
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.pieces.local import train_model
from fedsilo.methods.state import State

DRAWS, DRAWN = 10, 32
"""Released code: the gradient of a class is the mean over 10 draws of at most 32 of its samples."""


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
        groups = [members]
        if self.released:
            rng = np.random.default_rng(seed)
            groups = [rng.permutation(members)[:DRAWN] for _ in range(DRAWS)]
        weight, bias = torch.tensor(head["classifier.weight"]), torch.tensor(bias_of(head))
        stacked = torch.tensor(np.stack(groups))
        found = class_gradients(stacked, torch.full((len(groups),), label), weight, bias)
        return Gradient(found[0].mean(dim=0).numpy(), found[1].mean(dim=0).numpy())
