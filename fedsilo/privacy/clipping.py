"""How much is left of a change to a model where its norm is bounded; few numbers are in double precision at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from fedsilo.errors import Problem

PIECE_ITEMS = 1 << 17


def clip_factor(tensors: Iterable[tuple[np.ndarray, np.ndarray]], norm: float) -> float:
    """What a change is multiplied with, at most 1, so that its L2 norm over all tensors is at most `norm`.

    :param tensors: new and old values of each, of the same shape.
    :raises Problem: `not-finite`.
    """
    squares = 0.0
    for new, old in tensors:
        for one, other in zip(pieces(new), pieces(old), strict=True):
            squares += float(np.square(change(one, other)).sum())
    if not math.isfinite(squares):
        raise Problem(
            "not-finite", "the silo's change of the model is not finite; use a smaller learning rate"
        )
    return norm / max(math.sqrt(squares), norm)


def change(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Difference of new and old values, in float64."""
    with np.errstate(invalid="ignore", over="ignore"):
        return new.astype(np.float64) - old.astype(np.float64)


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The flat tensor in parts; none of a tensor without items."""
    flat = array.reshape(-1)
    for first in range(0, flat.size, PIECE_ITEMS):
        yield flat[first : first + PIECE_ITEMS]
