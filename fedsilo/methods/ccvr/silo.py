"""CCVR in the silo: count, mean and covariance of each class's features. Section 4.2 of the paper."""

from __future__ import annotations

import numpy as np

from fedsilo.learning.evaluation import features_of
from fedsilo.methods.building_blocks.private_steps import noisy_moments, positive, privacy_of
from fedsilo.methods.ccvr.config import COVARIANCE, MOMENT, Covariance
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State, Tree


def disclose(silo: SiloContext, task: SiloTask, private: State, *, covariance: Covariance) -> Reply:
    """N_c, mean and covariance of the features of each class, from the task's model in evaluation mode.

    A class below the minimum is left out. With differential privacy all of it has noise.
    """
    features = features_of(silo.model(task.trees["model"]), silo.train).astype(np.float64)
    if privacy_of(silo) is not None:
        return _disclose_privately(silo, task, features, covariance)
    labels = silo.train.labels.cpu().numpy()
    tensors: Tree = {}
    support: dict[str, int] = {}
    for label in range(silo.signature.classes):
        members = features[labels == label]
        if len(members) < silo.min_samples_per_class:
            continue
        blocks = {"count": np.array(len(members), np.int64), "mean": members.mean(axis=0)}
        if covariance != "none" and silo.spec.aggregation.secure:
            blocks[MOMENT] = second_moment(members, covariance)
        elif covariance != "none":
            blocks[COVARIANCE] = local_covariance(members, covariance)
        tensors |= {f"{name}/{label}": array for name, array in blocks.items()}
        support |= {f"{name}/{label}": len(members) for name in blocks}
    return Reply(tensors, samples=len(silo.train), support=support)


def _disclose_privately(
    silo: SiloContext, task: SiloTask, features: np.ndarray, covariance: Covariance
) -> Reply:
    """The same from counts, sums and sums of products with noise; it is the noisy count that may be too small."""
    order = 1 if covariance == "none" else 2
    moments, mechanisms = noisy_moments(silo, task, features, order)
    tensors: Tree = {}
    support: dict[str, int] = {}
    for label, (count, total, products) in enumerate(moments):
        if count < max(silo.min_samples_per_class, 1):
            continue
        mean = total / count
        blocks = {"count": np.array(count, np.int64), "mean": mean}
        if products is not None and silo.spec.aggregation.secure:
            blocks[MOMENT] = products / count if covariance == "full" else np.diag(products) / count
        elif products is not None:
            spread = (products - count * np.outer(mean, mean)) / max(count - 1, 1)
            full = covariance == "full"
            blocks[COVARIANCE] = positive(spread) if full else np.maximum(np.diag(spread), 0)
        tensors |= {f"{name}/{label}": array for name, array in blocks.items()}
        support |= {f"{name}/{label}": count for name in blocks}
    noised = frozenset(tensors)
    return Reply(tensors, samples=silo.train.records, support=support, mechanisms=mechanisms, noised=noised)


def local_covariance(members: np.ndarray, covariance: Covariance) -> np.ndarray:
    """Unbiased covariance (d, d), or its diagonal (d,); zero for a single sample.

    :param members: (n, d) features of one class.
    """
    centred = members - members.mean(axis=0)
    degrees = max(len(members) - 1, 1)
    if covariance == "diagonal":
        return np.asarray((centred**2).sum(axis=0) / degrees)
    return np.asarray(centred.T @ centred / degrees)


def second_moment(members: np.ndarray, covariance: Covariance) -> np.ndarray:
    """Mean of x x^T (d, d), or its diagonal (d,), which silos can add.

    :param members: (n, d) features of one class.
    """
    if covariance == "diagonal":
        return np.asarray((members**2).mean(axis=0))
    return np.asarray(members.T @ members / len(members))
