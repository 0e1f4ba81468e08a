"""Batches in which each record is with the same probability, independently of all others: what DP-SGD learns from.

A record is what is protected: an example, or a person. Of a person in the batch one example is drawn, each with the
same probability, so that the person adds one gradient to the step, however many examples there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedsilo.learning.examples import Examples


@dataclass(frozen=True)
class PoissonSampling:
    """The records of some examples.

    :param order: (n,): places of the examples, those of one record after the other.
    :param starts: (records,): where in `order` each record begins.
    :param sizes: (records,): how many examples each has.
    """

    order: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, examples: Examples) -> Self:
        """Persons where the examples have them, otherwise the examples themselves."""
        if examples.persons is None:
            places = np.arange(len(examples))
            return cls(places, places, np.ones_like(places))
        _, starts, sizes = np.unique(np.sort(examples.persons), return_index=True, return_counts=True)
        return cls(np.argsort(examples.persons, kind="stable"), starts, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def draw(self, sampling: float, random: np.random.Generator) -> np.ndarray:
        """Places of a batch's examples.

        :param sampling: probability with which a record is in it.
        """
        records = np.flatnonzero(random.random(len(self)) < sampling)
        if len(self) == len(self.order):
            return np.asarray(self.order[records])
        return np.asarray(self.order[self.starts[records] + random.integers(0, self.sizes[records])])
