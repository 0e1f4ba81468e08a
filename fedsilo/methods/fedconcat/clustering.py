"""Stage 1 of FedConcat by k-means on label distributions, with a size cap and a choice of the number of clusters.

Clusters are numbered by the first silo that is in them, so that their order, and with it the order of FedConcat's
encoders, does not depend on the random start of k-means.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fedsilo.methods.fedconcat.config import StagesConfig
from fedsilo.methods.interface import ServerContext

log = logging.getLogger("fedsilo.methods")

STARTS = 10
"""Random starts of k-means, of which the one with the smallest inertia counts."""


SIZE_FACTOR = 1.2
"""A capped cluster holds at most floor(1.2 N / K) silos, released code of FedConcat."""


def cluster_silos(job: ServerContext, config: StagesConfig, rows: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Silo -> number of its cluster, by k-means on the label distributions.

    :param rows: silo -> (C,) label distribution.
    """
    matrix, seed = np.stack(list(rows.values())), job.seed("clusters")
    most = min(config.clusters, len(rows))
    number = elbow(matrix, most, seed) if config.choice == "elbow" else most
    cap = int(SIZE_FACTOR * len(rows) / number) if config.size_capped else None
    labels = cluster(matrix, number, seed, cap)
    if (formed := len(set(labels))) < number:
        log.warning("clusters: %d instead of %d: no more label distributions differ", formed, number)
    return {silo: int(label) for silo, label in zip(rows, labels, strict=True)}


def cluster(rows: np.ndarray, clusters: int, seed: int, cap: int | None = None) -> np.ndarray:
    """Cluster of each row by k-means (Lloyd), numbered from 0 by first appearance.

    Fewer distinct rows than clusters give fewer clusters; none is ever empty.

    :param rows: (N, C), one label distribution per silo.
    :param cap: most rows of one cluster, raised to ceil(N / K) where it leaves some without a place; None: no limit.
    :returns: (N,) int64.
    """
    clusters = min(clusters, len(np.unique(rows, axis=0)))
    fitted = _fit(rows, clusters, seed)
    if cap is None:
        return renumber(np.asarray(fitted.labels_))
    least = -(-len(rows) // clusters)
    return renumber(cap_sizes(rows, fitted.cluster_centers_, max(cap, least)))


def elbow(rows: np.ndarray, largest: int, seed: int) -> int:
    """Number of clusters at the elbow of the inertia curve over 1 to `largest` clusters.

    The elbow is the point farthest below the straight line from the first to the last point of the curve, both
    axes scaled to [0, 1]; a curve that is flat or straight gives one cluster.
    """
    largest = min(largest, len(rows))
    inertia = np.zeros(largest)
    # From as many clusters as distinct rows on, nothing is left.
    for k in range(1, min(largest, len(np.unique(rows, axis=0))) + 1):
        inertia[k - 1] = _fit(rows, k, seed).inertia_
    drop = inertia[0] - inertia[-1]
    if largest < 3 or drop <= 1e-12:
        return largest if drop > 1e-12 else 1
    straight = 1.0 - np.arange(largest) / (largest - 1)
    return int(np.argmax(straight - (inertia - inertia[-1]) / drop)) + 1


def cap_sizes(rows: np.ndarray, centroids: np.ndarray, cap: int, rounds: int = 100) -> np.ndarray:
    """Assignment to the nearest centroid in which no cluster holds more than `cap` rows.

    Lloyd's rounds in which each over-full cluster gives its farthest rows away, every one to its nearest cluster
    that has space, in row order; centroids follow. The size limit that FedConcat's released code uses for data with
    many classes.

    :param centroids: (K, C) to start from; K * cap must be at least the number of rows.
    """
    centroids = centroids.copy()
    labels = np.full(len(rows), -1)
    for _ in range(rounds):
        before = labels
        distances = np.linalg.norm(rows[:, None] - centroids[None], axis=2)
        labels = _capped_clusters(distances, cap)
        for number in np.unique(labels):
            centroids[number] = rows[labels == number].mean(axis=0)
        if np.array_equal(labels, before):
            break
    return labels


def renumber(labels: np.ndarray) -> np.ndarray:
    """Clusters of the same rows, numbered from 0 by first appearance, (N,) int64."""
    order: dict[int, int] = {}
    numbers = [order.setdefault(int(label), len(order)) for label in labels]
    return np.asarray(numbers, np.int64)


def _capped_clusters(distances: np.ndarray, cap: int) -> np.ndarray:
    nearest = distances.argmin(axis=1)
    labels: np.ndarray = nearest.copy()
    for number in range(distances.shape[1]):
        members = np.flatnonzero(nearest == number)
        if len(members) > cap:
            farthest = members[np.argsort(-distances[members, number], kind="stable")]
            labels[farthest[: len(members) - cap]] = -1
    for row in np.flatnonzero(labels == -1):
        has_space = np.bincount(labels[labels >= 0], minlength=distances.shape[1]) < cap
        labels[row] = np.where(has_space, distances[row], np.inf).argmin()
    return labels


def _fit(rows: np.ndarray, clusters: int, seed: int) -> KMeans:
    with warnings.catch_warnings():
        # Rows that coincide up to rounding are one point to k-means; fewer clusters are then the right answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(n_clusters=clusters, n_init=STARTS, random_state=seed % 2**32).fit(rows)
