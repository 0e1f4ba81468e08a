"""How the blocks of several silos become one, in a plain job and where only sums over silos are seen.

A payload says it, and a contract of each block. It is no part of the contract's digest: it says what is made of a
block, not what leaves a silo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Quotient:
    """What a server half reads beside the mean: the sum over silos of w_k / m_k times each tensor of its model.

    :param metric: m_k, at least 1 in every update.
    :param weights: of w_k: `uniform`, 1 each, or None for the job's rule.
    """

    metric: str
    weights: Literal["uniform"] | None = None


@dataclass(frozen=True)
class BlockMean:
    """A block is averaged: by the job's rule, or of a class over the silos that sent it, each alike.

    :param over: by which its floating-point numbers are divided and added beside that, see `Quotient`.
    """

    over: Quotient | None = None


@dataclass(frozen=True)
class BlockSum:
    """Silos are asked for a block in order to add it."""


@dataclass(frozen=True)
class CountedMean:
    """A block is averaged by the number of examples behind it, of its class or element by element.

    :param count: name of the block that says how many they are.
    """

    count: str


@dataclass(frozen=True)
class SquaredDeviations:
    """A block has sums of squared deviations, which become those about the mean of all.

    :param mean: name of the block of means about which they are, a `CountedMean`.
    """

    mean: str


Combine = BlockMean | BlockSum | CountedMean | SquaredDeviations

BLOCK_MEAN = BlockMean()
