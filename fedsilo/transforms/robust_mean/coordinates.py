"""Rules that look at every coordinate by itself: median and trimmed mean.

Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018, definitions 1 and 2.
Silos count alike, however many samples they have: whoever lies may lie about those too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsilo.methods.state import Tree
from fedsilo.transforms.robust_mean.pieces import Models
from fedsilo.updates.summation import truncated_sums


def trimmed_mean(models: Models, names: Sequence[str], left_out: int) -> tuple[Tree, np.ndarray]:
    """Mean of each coordinate without its smallest and largest values, so many of each.

    With as many as leave one or two values it is the median.

    :param names: of the tensors.
    :returns: the tree, and for each silo the share of coordinates in which its value counted.
    """
    tree: Tree = {}
    counted, coordinates = np.zeros(models.silos), 0
    for name in names:
        dtype = models.dtype(name)
        found = np.empty(models.size(name), np.float64)
        for place, numbers in models.pieces(name):
            middle = np.sort(numbers, axis=0)[left_out : models.silos - left_out]
            found[place] = middle.mean(axis=0)
            counted += _counted_coordinates(numbers, middle)
            coordinates += numbers.shape[1]
        flat = found.astype(dtype) if dtype.kind == "f" else truncated_sums(found, dtype, models.silos)
        models.put_equal(name, flat)
        tree[name] = flat.reshape(models.shape(name))
    return tree, counted / max(coordinates, 1)


def median_trim(silos: int) -> int:
    """How many values are left out on each side of a median."""
    return (silos - 1) // 2


def _counted_coordinates(numbers: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """(silos,) in how many coordinates a silo's value is one of the middle ones.

    Where fewer of several equal values count than there are, each of them counts in part: which silo sent it makes no
    difference.

    :param numbers: (silos, n).
    :param middle: (values that count, n), sorted.
    """
    low, high = middle[0], middle[-1]

    def part_of(end: np.ndarray) -> np.ndarray:
        return np.asarray((middle == end).sum(axis=0) / (numbers == end).sum(axis=0))

    between = (low < numbers) & (numbers < high)
    parts = np.where(numbers == low, part_of(low), np.where(numbers == high, part_of(high), between))
    return np.asarray(parts.sum(axis=1))
