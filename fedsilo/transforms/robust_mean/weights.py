"""Rules that yield a weighted sum of the models, from the inner products of the models' changes.

x_i is the difference of silo i's model to the model that the silos were sent, and G the matrix of <x_i, x_j>: norms and
distances follow from it, and so do those of every weighted sum of the x_i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsilo.methods.state import Tree
from fedsilo.transforms.robust_mean.pieces import Models, bounded_numbers

ITERATIONS = 1000
"""Most iterations of Weiszfeld's algorithm."""

SMOOTHING = 1e-6
"""nu, Pillutla et al., IEEE Transactions on Signal Processing 2022, Algorithm 2, as a part of the radius of the
smallest ball around a model that holds most of the weight.
"""

TOLERANCE = 1e-10
"""Change of a weight below which the geometric median is reached."""


def products(models: Models, sent: Mapping[str, np.ndarray]) -> np.ndarray:
    """G, (silos, silos), over all tensors of floating-point numbers.

    :param sent: the model that the silos were sent.
    """
    gram = np.zeros((models.silos, models.silos))
    for name in models.floats:
        flat = np.asarray(sent[name]).reshape(-1)
        for place, numbers in models.pieces(name):
            changes = numbers - bounded_numbers(flat[place])
            gram = gram + changes @ changes.T
    return gram


def weighted_sum(
    models: Models, weights: np.ndarray, sent: Mapping[str, np.ndarray], sent_weight: float
) -> Tree:
    """Mean of the weighted models and of the weighted model that was sent, of all tensors of floating-point numbers.

    In double precision: the weight of a model that is far away may be less than single precision has.
    """
    tree: Tree = {}
    for name in models.floats:
        given = np.asarray(sent[name]).reshape(-1)
        total = sent_weight * given.astype(np.float64)
        for place, numbers in models.pieces(name):
            for weight, row in zip(weights, numbers, strict=True):
                total[place] += weight * row
        flat = total.astype(models.dtype(name))
        models.put_equal(name, flat, given if sent_weight else None)
        tree[name] = flat.reshape(models.shape(name))
    return tree


def squared_distances(gram: np.ndarray) -> np.ndarray:
    """(silos, silos), ||x_i - x_j||^2."""
    squares = np.diag(gram)
    return np.asarray(np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0))


def clipping(gram: np.ndarray, norm: float) -> np.ndarray:
    """(silos,) what is left of each change: min(1, norm / ||x_i||)."""
    lengths = np.sqrt(np.diag(gram))
    return np.asarray(norm / np.maximum(lengths, norm))


def krum(gram: np.ndarray, byzantine: int, selected: int) -> np.ndarray:
    """(silos,) 1 for the models that are averaged: those with the least sums of squared distances to their neighbours.

    Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017, section 4
    and 5 (multi-Krum): the score of a model is the sum over its n - f - 2 nearest others. Ties go to the first.
    """
    distances, count = squared_distances(gram), len(gram)
    np.fill_diagonal(distances, np.inf)
    scores = np.sort(distances, axis=1)[:, : count - byzantine - 2].sum(axis=1)
    chosen = np.argsort(scores, kind="stable")[:selected]
    found = np.zeros(count)
    found[chosen] = 1
    return found


def geometric_median(gram: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(silos,) weights, which add up to one, of the point with the least weighted sum of distances to the models.

    The smoothed Weiszfeld algorithm (Pillutla et al., "Robust Aggregation for Federated Learning", Algorithm 2) until
    it stands still: every iterate is a weighted sum of the models, of which G gives the distances to all of them. It
    begins in a ball that silos of less than half of the weight can neither move away from the others nor enlarge, and
    no iterate has a larger smoothed sum of distances than the one before.

    :param weights: of the silos in a mean, which add up to one.
    """
    squares, (inside, radius) = np.diag(gram), _majority(np.sqrt(squared_distances(gram)), weights)
    point = np.where(inside, weights, 0) / weights[inside].sum()
    if radius == 0:
        return np.asarray(point)  # a point with most of the weight is the median
    for _ in range(ITERATIONS):
        distances = np.sqrt(np.maximum(squares - 2 * gram @ point + point @ gram @ point, 0))
        next_weights = weights / np.maximum(distances, SMOOTHING * radius)
        next_weights = next_weights / next_weights.sum()
        if np.abs(next_weights - point).max() < TOLERANCE:
            return np.asarray(next_weights)
        point = next_weights
    return np.asarray(point)


def _majority(distances: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Which models are in the smallest ball around one of them that holds more than half of the weight; its radius.

    Silos of less than half of the weight cannot fill a ball, and the others are in one of their own: so there is one of
    the others in it, and it is no larger than theirs.

    :param distances: (silos, silos).
    """
    order = np.argsort(distances, axis=1, kind="stable")
    enough = np.argmax(np.cumsum(weights[order], axis=1) > 0.5, axis=1)
    radii = np.take_along_axis(distances, order, axis=1)[np.arange(len(weights)), enough]
    centre = int(np.argmin(radii))
    return distances[centre] <= radii[centre], float(radii[centre])
