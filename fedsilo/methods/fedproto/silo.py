"""FedProto in a silo: its own model, trained near the prototypes, and the means of its classes' features."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedsilo.learning.evaluation import features_of
from fedsilo.learning.models import Model, to_tree
from fedsilo.learning.training import Loss, fit, learned_from
from fedsilo.methods.components.own_models import own_model
from fedsilo.methods.fedproto.config import FedProtoConfig
from fedsilo.methods.interface import PERSONAL_TREE, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State, Tree


class ClassSums:
    """Sums of features by class.

    :ivar totals: (C, d), float64.
    :ivar counts: (C,), features of each class that are in them.
    """

    def __init__(self, classes: int, width: int) -> None:
        self.totals, self.counts = torch.zeros(classes, width, dtype=torch.float64), torch.zeros(classes)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add (n, d) features of (n,) classes."""
        labels = labels.cpu()
        self.totals.index_add_(0, labels, features.detach().double().cpu())
        self.counts += labels.bincount(minlength=len(self.counts))

    def means(self) -> np.ndarray:
        """Mean feature of each class, (C, d) float64; zeros of a class without features."""
        return (self.totals / self.counts.clamp(min=1)[:, None]).numpy()


def train_near_prototypes(config: FedProtoConfig) -> SiloStep:
    """A step of E epochs on the cross-entropy and the distance to the prototypes, which then sends the class means."""

    def step(silo: SiloContext, task: SiloTask, private: State) -> Reply:
        model = silo.model(own_model(silo, private))
        classes, width = silo.signature.classes, silo.signature.feature
        seen = ClassSums(classes, width)
        loss = _loss(silo, config, task.trees.get("prototypes", {}), seen)
        plan, own = silo.local_training(task), silo.train.labels.cpu()
        report = fit(model, silo.train, plan, loss=loss)
        counts = behind = own.bincount(minlength=classes).tolist()
        if config.variant == "paper":  # C_i^(j), eq. 3
            seen = ClassSums(classes, width)
            seen.add(torch.from_numpy(features_of(model, silo.train)), own)
        else:  # in MAP's code of the features as they were in every step, which need not have seen all examples
            learned = learned_from(model, silo.train, plan).cpu()
            behind = own[learned].bincount(minlength=classes).tolist()
        labels = [label for label in range(classes) if behind[label] >= silo.min_samples_per_class]
        tensors = _blocks(config, labels, counts, seen.means())
        support = {name: behind[int(name.rpartition("/")[2])] for name in tensors}
        kept = private.with_trees(**{PERSONAL_TREE: to_tree(model)})
        return Reply(tensors, len(silo.train), {"loss": report.loss}, support, kept)

    return step


def _blocks(config: FedProtoConfig, labels: list[int], counts: list[int], means: np.ndarray) -> Tree:
    """What the silo says of these classes."""
    if config.variant == "paper":
        return {f"mean/{label}": means[label].astype(np.float32) for label in labels}
    told: Tree = {f"count/{label}": np.array(counts[label], np.int64) for label in labels}
    return told | {f"total/{label}": (counts[label] * means[label]).astype(np.float32) for label in labels}


def _loss(
    silo: SiloContext, config: FedProtoConfig, prototypes: Mapping[str, np.ndarray], seen: ClassSums
) -> Loss:
    """Cross-entropy and lambda times the distance to the prototypes, eq. 7; a class without one has none.

    :param seen: where the features of every step are added up.
    """
    device = silo.train.labels.device
    targets, known = np.zeros(seen.totals.shape, np.float32), np.zeros(len(seen.counts), np.float32)
    for name, prototype in prototypes.items():
        label = int(name.rpartition("/")[2])
        targets[label], known[label] = prototype, 1
    goals, has_goal = torch.from_numpy(targets).to(device), torch.from_numpy(known).to(device)
    distance = _of_examples if config.variant == "paper" else _of_class_means

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        found = model.features(features)
        value = functional.cross_entropy(model.classifier(found), labels)
        if config.variant == "map":
            seen.add(found, labels)
        if not prototypes:
            return value
        return value + config.prototype_weight * distance(found, labels, goals, has_goal)

    return loss


def _of_examples(features: Tensor, labels: Tensor, goals: Tensor, has_goal: Tensor) -> Tensor:
    """Mean squared difference of features and their class's prototype; an example without one counts as on it."""
    return (has_goal[labels][:, None] * (features - goals[labels])).square().mean()


def _of_class_means(features: Tensor, labels: Tensor, goals: Tensor, has_goal: Tensor) -> Tensor:
    """Mean over the batch's classes with a prototype of the squared distance of their mean feature to it."""
    members = functional.one_hot(labels, len(goals)).to(features.dtype)
    count = members.sum(dim=0)
    means = members.T @ features / count.clamp(min=1)[:, None]
    here = has_goal * (count > 0)
    return ((means - goals).square().sum(dim=1) * here).sum() / here.sum().clamp(min=1)
