"""Counts and moments of the classes of a silo's examples, as a silo half is given them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsilo.privacy.mechanism import Mechanism

SpreadKind = Literal["covariance", "moment"]
"""Unbiased covariance of features, or the mean of their squares and products, which silos can add."""


@dataclass(frozen=True)
class Spread:
    """What is told of how a class's features spread.

    :param diagonal: of each feature by itself, (d,), in place of (d, d).
    """

    kind: SpreadKind
    diagonal: bool = False


@dataclass(frozen=True)
class OneClassMoments:
    """Count, mean and spread of one class of a silo's examples.

    :param count: of its examples.
    :param mean: (d,) of their features; empty where there are none.
    :param spread: (d, d) or (d,); None where it was not asked for.
    """

    count: int
    mean: np.ndarray
    spread: np.ndarray | None = None


@dataclass(frozen=True)
class ClassMoments:
    """Moments of the classes of which a silo has enough examples.

    :param of: class -> its moments.
    :param records: what the silo counts by, examples or persons.
    :param mechanisms: that all of it went through.
    """

    of: Mapping[int, OneClassMoments]
    records: int
    mechanisms: tuple[Mechanism, ...] = ()
