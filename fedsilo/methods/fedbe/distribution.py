"""A distribution of models, fitted to those that the silos sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsilo.methods.components.buffers import is_learned
from fedsilo.methods.state import Tree

VARIANCE_SCALE = 0.1
"""Scale of the standard deviation in a sample, as in the released code."""

LEAST_VARIANCE = 1e-5
"""Least variance of an element of an update of norm one, as in the released code."""


@dataclass(frozen=True)
class Moments:
    """Moments of one tensor's updates over the silos.

    Mean and variance are those of the unit updates u_k = (w_k - w) / ||w_k - w||, and the norm is the mean of
    ||w_k - w||.
    """

    mean: np.ndarray
    variance: np.ndarray
    norm: float


@dataclass(frozen=True)
class GaussianDistribution:
    """Independent normal distributions of every element of every learned tensor, round w.

    :param base: w, the model that the silos were given.
    """

    base: Mapping[str, np.ndarray]
    moments: Mapping[str, Moments]

    @classmethod
    def of(cls, base: Mapping[str, np.ndarray], models: Iterable[Mapping[str, np.ndarray]]) -> Self:
        """Fitted to the models, of which one is in memory at a time."""
        learned = [name for name, array in base.items() if is_learned(name, array)]
        first = {name: np.zeros(base[name].shape) for name in learned}
        second = {name: np.zeros(base[name].shape) for name in learned}
        norms, count = dict.fromkeys(learned, 0.0), 0
        for model in models:
            count += 1
            for name in learned:
                update = model[name].astype(np.float64) - base[name]
                norm = float(np.linalg.norm(update))
                unit = update / norm if norm else update
                first[name] += unit
                second[name] += unit**2
                norms[name] += norm
        return cls(base, {name: _moments(first[name], second[name], norms[name], count) for name in learned})

    def sample(self, draw: Callable[[str, tuple[int, ...]], np.ndarray]) -> Tree:
        """w + (mean + 0.1 sqrt(variance) e) norm, of the learned tensors.

        :param draw: e, of the name and shape of a tensor.
        """
        return {name: self._tensor(name, draw(name, self.base[name].shape)) for name in self.moments}

    def _tensor(self, name: str, noise: np.ndarray) -> np.ndarray:
        of = self.moments[name]
        unit = of.mean + VARIANCE_SCALE * np.sqrt(of.variance) * noise
        return np.asarray(self.base[name] + unit * of.norm, self.base[name].dtype)


def _moments(first: np.ndarray, second: np.ndarray, norms: float, count: int) -> Moments:
    mean = first / count
    return Moments(mean, np.maximum(second / count - mean**2, LEAST_VARIANCE), norms / count)
