"""Count, mean and spread of each feature: computed in pieces of any size, and merged without loss.

Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979: two parts with
means m_a, m_b and sums of squared deviations M_a, M_b have together, with d = m_b - m_a and n = n_a + n_b, the mean
m_a + d n_b / n and the sum M_a + M_b + d^2 n_a n_b / n. No sum of squares is ever formed, so that nothing cancels.

A missing value is NaN; it counts as missing and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np


@dataclass(frozen=True)
class FeatureStatistics:
    """What is known of each of F features; all arrays (F,).

    :param count: values that are there, int64.
    :param missing: values that are not, int64.
    :param mean: of those that are there, float64; 0 where there is none.
    :param m2: their sum of squared deviations from the mean, float64.
    """

    count: np.ndarray
    missing: np.ndarray
    mean: np.ndarray
    m2: np.ndarray

    @classmethod
    def none(cls, features: int) -> FeatureStatistics:
        """Statistics of no value at all, with counts of 0."""
        counts, sums = np.zeros(features, np.int64), np.zeros(features)
        return cls(counts, counts, sums, sums)

    @classmethod
    def of(cls, values: np.ndarray) -> FeatureStatistics:
        """Statistics of each feature of a table or of images, in double precision.

        :param values: (n, F, ...); the features, or channels, are the second axis.
        """
        rows = _by_feature(values)
        there = ~np.isnan(rows)
        count = there.sum(axis=1)
        some = np.maximum(count, 1)
        # About its first value a constant feature is exactly zero, so that its spread is too, in any number of parts.
        first = there.argmax(axis=1) if rows.shape[1] else np.zeros(len(rows), np.int64)
        origin = np.where(count > 0, rows[np.arange(len(rows)), first], 0.0) if rows.shape[1] else 0.0 * some
        about = np.where(there, rows - origin[:, np.newaxis], 0.0)
        shift = about.sum(axis=1) / some
        deviations = np.where(there, about - shift[:, np.newaxis], 0.0)
        return cls(count, (~there).sum(axis=1), origin + shift, (deviations**2).sum(axis=1))

    def merge(self, other: FeatureStatistics) -> FeatureStatistics:
        """Statistics of both parts together, as if their values had been pooled."""
        count = self.count + other.count
        some = np.maximum(count, 1)
        step = np.where((self.count > 0) & (other.count > 0), other.mean - self.mean, 0.0)
        mean = np.where(self.count > 0, self.mean, other.mean) + step * (other.count / some)
        between = step**2 * (self.count * (other.count / some))
        return FeatureStatistics(count, self.missing + other.missing, mean, self.m2 + other.m2 + between)

    @property
    def variance(self) -> np.ndarray:
        """Mean squared deviation, (F,), as a standard scaler divides by its root; 0 where there is no value."""
        return np.asarray(self.m2 / np.maximum(self.count, 1))

    @property
    def scale(self) -> np.ndarray:
        """Standard deviation of each feature, (F,); 1 for a constant feature, which thereby stays as it is."""
        deviation = np.sqrt(self.variance)
        return np.where(deviation > 0, deviation, 1.0)


def merge_statistics(parts: Iterable[FeatureStatistics], features: int) -> FeatureStatistics:
    """Statistics of all parts together, added in their order; without a part, those of no value."""
    return reduce(FeatureStatistics.merge, parts, FeatureStatistics.none(features))


def histogram(values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """Values below the first edge, from each edge to below the next, and from the last on: (edges + 1,), int64.

    :param values: of one feature, any shape; missing ones are left out.
    :param edges: rising.
    """
    there = values[~np.isnan(values)]
    places = np.searchsorted(np.asarray(edges, np.float64), there.astype(np.float64), side="right")
    return np.bincount(places, minlength=len(edges) + 1).astype(np.int64)


def _by_feature(values: np.ndarray) -> np.ndarray:
    """(n, F, ...) as (F, n x ...) in double precision."""
    rows = np.moveaxis(np.asarray(values, np.float64), 1, 0)
    return rows.reshape(len(rows), -1)
