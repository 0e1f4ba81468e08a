"""Class statistics of features: their exact pooling over silos, and draws from the pooled Gaussian.

Section 4.2 of the paper. With unbiased local covariances the pooled ones equal those of the pooled features.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedsilo.methods.ccvr.config import COVARIANCE, MOMENT, Covariance
from fedsilo.methods.interface import ServerContext
from fedsilo.methods.state import Tree


@dataclass
class ClassPool:
    """Running pool of one class: N_c, mean and scatter matrix (d, d) or its diagonal (d,).

    Kept as the scatter about the running mean: merging two silos adds n m / (n + m) times the outer product of the
    difference of their means. This equals the paper's sum of second moments, without its cancellation.
    """

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    def merge(self, count: int, mean: np.ndarray, covariance: np.ndarray) -> None:
        """Add one silo's statistics."""
        total = self.count + count
        step = mean - self.mean
        between = np.outer(step, step) if self.scatter.ndim == 2 else step**2
        self.scatter += covariance * (count - 1) + between * (self.count * count / total)
        self.mean = self.mean + step * (count / total)
        self.count = total

    @property
    def covariance(self) -> np.ndarray:
        """Unbiased covariance of the pool; zero for a single sample."""
        return self.scatter / max(self.count - 1, 1)


def pool(
    job: ServerContext, sent: Iterable[tuple[str, Tree]], covariance: Covariance
) -> dict[int, ClassPool]:
    """Class -> pooled statistics over all silos that disclosed it; a class that none did is absent.

    With covariance "none" the scatter holds only what the silos' means say: the spread between silos.
    """
    width = job.signature.feature
    zero = np.zeros((width, width) if covariance == "full" else (width,))
    pooled: dict[int, ClassPool] = {}
    for _, given in sent:
        for label in range(job.signature.classes):
            if f"count/{label}" not in given or f"mean/{label}" not in given:
                continue
            count, mean = int(given[f"count/{label}"]), given[f"mean/{label}"]
            spread = given.get(f"{COVARIANCE}/{label}", zero)
            if f"{MOMENT}/{label}" in given:
                spread = covariance_of(count, mean, given[f"{MOMENT}/{label}"])
            if count >= 1:
                pooled.setdefault(label, ClassPool(0, np.zeros(width), zero.copy())).merge(
                    count, mean, spread
                )
    return pooled


def covariance_of(count: int, mean: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Unbiased covariance (d, d), or its diagonal (d,), from the mean and the second moment of so many features.

    By rounding, and by noise, it may be less than zero in some direction.
    """
    square = np.outer(mean, mean) if moment.ndim == 2 else mean**2
    return np.asarray((moment - square) * (count / max(count - 1, 1)))


def gaussian_features(
    pooled: ClassPool, amount: int, variance: float | None, rng: np.random.Generator
) -> np.ndarray:
    """(amount, d) draws from N(mean, covariance) of a class.

    The covariance is symmetrised and negative eigenvalues, which are rounding, are cut to zero, so that singular
    and one-sample classes work like any other.

    :param variance: isotropic variance that replaces the covariance; None uses the pooled one.
    """
    noise = rng.standard_normal((amount, len(pooled.mean)))
    if variance is not None:
        return np.asarray(pooled.mean + noise * np.sqrt(variance))
    covariance = pooled.covariance
    if covariance.ndim == 1:
        return np.asarray(pooled.mean + noise * np.sqrt(np.clip(covariance, 0, None)))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(pooled.mean + (noise * np.sqrt(np.clip(values, 0, None))) @ vectors.T)
