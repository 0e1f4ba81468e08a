"""What is true of a silo's data, in numbers that stay in the silo: its policy decides what is told of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.arrays import Arrays, value_range
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.readiness.units import Magnitudes, magnitudes_of, sizes_of

PIECE_NUMBERS = 1 << 20
"""Numbers that are in memory in double precision at a time."""

DIGEST_BYTES = 16
"""Bytes of an example's digest, by which copies are found."""

SPREAD = 1000.0
"""Ratio of the largest to the smallest standard deviation from which features count as of very different size."""


@dataclass(frozen=True)
class TrainingLimits:
    """What the silo's policy and the job's differential privacy ask of the number of examples that are trained on.

    :param records: examples, or persons where the job protects those.
    :param min_records: below which the policy lets no model leave.
    :param privacy: why the job's differential privacy cannot be had with so many, and the remedy; None where it can.
    """

    records: int = 0
    min_records: int = 0
    privacy: str | None = None


@dataclass(frozen=True)
class SiloData:
    """One silo's data for a job, and the minima that job and silo ask of them.

    :param train: places of the examples that it trains on.
    :param validation: of those that it sets aside.
    :param min_samples_per_class: of job and silo together, as is `min_values_per_feature`.
    :param tells_counts: whether the silo's policy permits counts of its classes.
    :param tells_features: whether it permits statistics of its features.
    :param only_silos_score: whether the job has a model that nobody scores but the silos.
    :param limits: of the number of examples that are trained on.
    """

    silo: str
    arrays: Arrays
    train: np.ndarray
    validation: np.ndarray
    min_samples_per_class: int
    min_values_per_feature: int
    tells_counts: bool
    tells_features: bool
    only_silos_score: bool
    limits: TrainingLimits = TrainingLimits()


@dataclass(frozen=True)
class Facts:
    """What one pass over the data finds.

    :param classes: training examples of each class; None where the task has no single class.
    :param statistics: of the features; None where they are tokens.
    :param sizes: statistics of the sizes of their numbers other than zero.
    :param unusual_range: whether values of images lie in none of the usual ranges.
    :param copies: examples that are there before.
    :param leaking: validation examples of which a copy is trained on.
    """

    train: int
    validation: int
    examples: int
    classes: np.ndarray | None
    statistics: FeatureStatistics | None
    sizes: FeatureStatistics
    unusual_range: bool
    copies: int
    leaking: int

    @classmethod
    def of(cls, spec: FederatedJobSpec, data: SiloData) -> Facts:
        """Look at all examples once."""
        statistics, sizes, digests, extremes = _pass(spec, data)
        task = None if spec.task is None else spec.task.name
        classes = None
        if task in (None, "classification"):
            classes = np.bincount(data.arrays.labels[data.train], minlength=spec.data.class_count)
        images = data.arrays.features.ndim == 4
        return cls(
            train=len(data.train),
            validation=len(data.validation),
            examples=len(digests),
            classes=classes,
            statistics=None if task == "language" else statistics,
            sizes=sizes,
            unusual_range=images and value_range(*extremes) is None,
            copies=len(digests) - len(np.unique(digests)),
            leaking=int(np.isin(digests[data.validation], digests[data.train]).sum()),
        )

    def absent_classes(self) -> list[int]:
        """Classes without an example to train on."""
        return [] if self.classes is None else np.flatnonzero(self.classes == 0).tolist()

    def small_classes(self, minimum: int) -> list[int]:
        """Classes with some, and fewer than the minimum."""
        if self.classes is None:
            return []
        return np.flatnonzero((self.classes > 0) & (self.classes < minimum)).tolist()

    def incomplete(self) -> list[int]:
        """Features with missing values."""
        return [] if self.statistics is None else np.flatnonzero(self.statistics.missing > 0).tolist()

    def sparse(self, minimum: int) -> list[int]:
        """Features with fewer values than the minimum."""
        return [] if self.statistics is None else np.flatnonzero(self.statistics.count < minimum).tolist()

    def constant(self) -> list[int]:
        """Features with one value in several examples."""
        found = self.statistics
        return [] if found is None else np.flatnonzero((found.m2 == 0) & (found.count > 1)).tolist()

    def magnitudes(self, minimum: int) -> Magnitudes:
        """Orders of magnitude of the features with so many numbers other than zero; none of tokens."""
        return () if self.statistics is None else magnitudes_of(self.sizes, minimum)

    def spread(self) -> tuple[float, float] | None:
        """The smallest and the largest standard deviation, where they are very different."""
        if self.statistics is None:
            return None
        spread = np.sqrt(self.statistics.variance[self.statistics.m2 > 0])
        different = len(spread) > 1 and spread.max() > SPREAD * spread.min()
        return (float(spread.min()), float(spread.max())) if different else None


def standardises(spec: FederatedJobSpec) -> bool:
    """Whether features of very different size do no harm."""
    return spec.data.preprocessing is not None and spec.data.preprocessing.standardise


def _pass(
    spec: FederatedJobSpec, data: SiloData
) -> tuple[FeatureStatistics, FeatureStatistics, np.ndarray, tuple[float, float]]:
    """Statistics of all features and of their sizes, a digest of each example, (n,), and the least and the largest
    value that is there.
    """
    shape = spec.data.input_shape
    statistics = sizes = FeatureStatistics.none(shape[0])
    digests = np.empty(len(data.arrays), f"S{DIGEST_BYTES}")
    least, most = np.inf, -np.inf
    rows = max(PIECE_NUMBERS // prod(shape), 1)
    for start in range(0, len(data.arrays), rows):
        piece = np.ascontiguousarray(data.arrays.features[start : start + rows])
        for place, row in enumerate(piece, start):
            digests[place] = hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest()
        fed = piece / 255 if piece.dtype == np.uint8 else piece
        least, most = np.fmin(least, np.fmin.reduce(fed, None)), np.fmax(most, np.fmax.reduce(fed, None))
        statistics = statistics.merge(FeatureStatistics.of(fed))
        sizes = sizes.merge(FeatureStatistics.of(sizes_of(fed)))
    return statistics, sizes, digests, (float(least), float(most))
