"""Counts and moments of a silo's classes, as they may leave it: what `SiloContext.class_moments` gives silo halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fedsilo.methods.components.private_steps import (
    noisy_counts,
    noisy_moments,
    positive_covariance,
    privacy_of,
)
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.moments import ClassMoments, OneClassMoments, Spread
from fedsilo.methods.state import Tree
from fedsilo.privacy.mechanism import Mechanism


def reply_of_moments(moments: ClassMoments, blocks: Callable[[OneClassMoments], Tree]) -> Reply:
    """The answer of a step that sends moments of classes.

    :param blocks: what is sent of a class, each as `<name>/<class>`.
    """
    tensors: Tree = {}
    support: dict[str, int] = {}
    for label, of_class in moments.of.items():
        sent = {f"{name}/{label}": array for name, array in blocks(of_class).items()}
        tensors |= sent
        support |= dict.fromkeys(sent, of_class.count)
    noised = frozenset(tensors) if moments.mechanisms else frozenset[str]()
    return Reply(tensors, moments.records, support=support, mechanisms=moments.mechanisms, noised=noised)


def class_moments(
    silo: SiloContext, task: SiloTask, features: np.ndarray | None, spread: Spread | None
) -> ClassMoments:
    """Counts and moments of a silo's classes, exact or with noise, as they may leave the silo.

    Halves call it as `SiloContext.class_moments`, which says what its parameters are.
    """
    mechanisms: tuple[Mechanism, ...] = ()
    if privacy_of(silo) is None:
        found = _exact_moments(silo, features, spread)
    elif features is None:
        counts, mechanisms = noisy_counts(silo, task)
        found = (OneClassMoments(int(count), np.empty(0)) for count in counts)
    else:
        sums, mechanisms = noisy_moments(silo, task, features, 1 if spread is None else 2)
        found = (_of_sums(*of_class, spread) for of_class in sums)
    least = max(silo.min_samples_per_class, 1)
    enough = {label: moments for label, moments in enumerate(found) if moments.count >= least}
    return ClassMoments(enough, silo.train.records, mechanisms)


def _exact_moments(
    silo: SiloContext, features: np.ndarray | None, spread: Spread | None
) -> Iterator[OneClassMoments]:
    """Moments of each class without noise; those of too few examples are only counted."""
    labels = silo.train.labels.cpu().numpy()
    for label in range(silo.signature.classes):
        chosen = labels == label
        count = int(chosen.sum())
        if features is None or count < max(silo.min_samples_per_class, 1):
            yield OneClassMoments(count, np.empty(0))
            continue
        members = features[chosen]
        yield OneClassMoments(
            count, members.mean(axis=0), None if spread is None else spread_of(members, spread)
        )


def _of_sums(
    count: int, total: np.ndarray, products: np.ndarray | None, spread: Spread | None
) -> OneClassMoments:
    """Moments from a count, a sum and a sum of products with noise, by which the count may be none."""
    if count < 1:
        return OneClassMoments(0, total)
    mean = total / count
    if spread is None or products is None:
        return OneClassMoments(count, mean)
    if spread.kind == "moment":
        return OneClassMoments(
            count, mean, np.diag(products) / count if spread.diagonal else products / count
        )
    covariance = (products - count * np.outer(mean, mean)) / max(count - 1, 1)
    return OneClassMoments(
        count,
        mean,
        np.maximum(np.diag(covariance), 0) if spread.diagonal else positive_covariance(covariance),
    )


def spread_of(members: np.ndarray, spread: Spread) -> np.ndarray:
    """The spread of features (n, d); of a single one the covariance is zero."""
    if spread.kind == "moment":
        return np.asarray(
            (members**2).mean(axis=0) if spread.diagonal else members.T @ members / len(members)
        )
    centred, degrees = members - members.mean(axis=0), max(len(members) - 1, 1)
    return np.asarray(
        (centred**2).sum(axis=0) / degrees if spread.diagonal else centred.T @ centred / degrees
    )
