"""CReFF in the silo: gradients of the aggregator's classifier, then local training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedsilo.learning.evaluation import features_of
from fedsilo.learning.models import Model, evaluating
from fedsilo.methods.components.local import train_model
from fedsilo.methods.creff.config import BIAS, WEIGHT
from fedsilo.methods.creff.gradients import ClassGradients, bias_of, class_gradients
from fedsilo.methods.creff.siamese import augmented_images
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State

DRAWS, DRAWN_SAMPLES = 10, 32
"""The gradient of a class is the mean over 10 draws of at most 32 of its samples, as in the released code."""


@dataclass(frozen=True)
class GradientTraining:
    """Gradients of the downloaded head under the downloaded extractor, then ordinary local training.

    :param released: random draws per class instead of the mean over all its samples, and the bias's gradient too.
    :param dsa: whether the images of each draw are augmented first.
    """

    released: bool
    dsa: bool = False

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """The reply of local training, with the gradients beside the model; a class below the minimum is left out."""
        model = silo.model(task.trees["model"])
        features = None if self.dsa else features_of(model, silo.train)
        labels = silo.train.labels.cpu().numpy()
        gradients: dict[str, np.ndarray] = {}
        support: dict[str, int] = {}
        for label in range(silo.signature.classes):
            members = np.flatnonzero(labels == label)
            if len(members) < silo.min_samples_per_class:
                continue
            seed = silo.seed("draws", task.round, label)
            if features is None:
                groups = augmented_draws(silo, model, members, seed)
            else:
                groups = self.groups(features[members], seed)
            found = gradient(groups, label, task.trees["head"])
            blocks = {WEIGHT: found.weight} | ({BIAS: found.bias} if self.released else {})
            gradients |= {f"{name}/{label}": array for name, array in blocks.items()}
            support |= {f"{name}/{label}": len(members) for name in blocks}
        trained = train_model(silo, task, private)
        return replace(trained, tensors={**trained.tensors, **gradients}, support=support)

    def groups(self, members: np.ndarray, seed: int) -> list[np.ndarray]:
        """All features of the class, (n, d), or draws of some of them."""
        if not self.released:
            return [members]
        rng = np.random.default_rng(seed)
        return [rng.permutation(members)[:DRAWN_SAMPLES] for _ in range(DRAWS)]


def augmented_draws(silo: SiloContext, model: Model, members: np.ndarray, seed: int) -> list[np.ndarray]:
    """Features of the draws, each (at most 32, d), under one DSA augmentation of each draw's images.

    As in the released code, what is augmented are images as the encoder takes them, after the job's preprocessing.

    :param members: (n,) places of the class's examples among the silo's.
    """
    rng, groups = np.random.default_rng(seed), []
    with evaluating(model), torch.inference_mode():
        for _ in range(DRAWS):
            drawn = torch.tensor(rng.permutation(members)[:DRAWN_SAMPLES], device=silo.train.labels.device)
            images = augmented_images(
                model.preprocessed_inputs(silo.train.batch(drawn)[0]), int(rng.integers(2**31))
            )
            groups.append(model.encoder(images).float().cpu().numpy())
    return groups


def gradient(groups: Sequence[np.ndarray], label: int, head: Mapping[str, np.ndarray]) -> ClassGradients:
    """Mean over the groups, each (n, d), of the mean gradient of the class's cross-entropy (eq. 3)."""
    weight, bias = torch.tensor(head["classifier.weight"]), torch.tensor(bias_of(head))
    stacked = torch.tensor(np.stack(groups))
    found = class_gradients(stacked, torch.full((len(groups),), label), weight, bias)
    return ClassGradients(found[0].mean(dim=0).numpy(), found[1].mean(dim=0).numpy())
