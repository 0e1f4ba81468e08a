"""Rules that yield a weighted sum of the models, from the inner products of the models' changes.

x_i is the difference of silo i's model to the model that the silos were sent, and G the matrix of <x_i, x_j>: norms and
distances follow from it, and so do those of every weighted sum of the x_i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsilo.engine.robust.pieces import Models

ITERATIONS = 1000
"""Of Weiszfeld's algorithm at most."""

SMOOTHING = 1e-6
"""nu, Pillutla et al., IEEE Transactions on Signal Processing 2022, Algorithm 2."""

TOLERANCE = 1e-10
"""Change of a weight below which the geometric median is reached."""


def products(models: Models, sent: Mapping[str, np.ndarray]) -> np.ndarray:
    """G, (silos, silos), over all tensors of floating-point numbers.

    :param sent: the model that the silos were sent.
    """
    gram = np.zeros(())
    for name in models.tensors:
        if models.dtype(name).kind != "f":
            continue
        flat = np.asarray(sent[name]).reshape(-1)
        for place, numbers in models.pieces(name):
            changes = numbers - flat[place]
            gram = gram + changes @ changes.T
    return gram


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
    it stands still: every iterate is a weighted sum of the models, of which G gives the distances to all of them.

    :param weights: of the silos in a mean, which add up to one.
    """
    squares, found = np.diag(gram), weights
    scale = np.sqrt(max(float(squares.max()), 0.0)) or 1.0
    for _ in range(ITERATIONS):
        distances = np.sqrt(np.maximum(squares - 2 * gram @ found + found @ gram @ found, 0))
        following = weights / np.maximum(distances, SMOOTHING * scale)
        following = following / following.sum()
        if np.abs(following - found).max() < TOLERANCE:
            return np.asarray(following)
        found = following
    return found
