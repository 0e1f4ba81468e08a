"""Rules that look at every coordinate by itself: median and trimmed mean.

Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018, definitions 1 and 2.
Silos count alike, however many samples they have: whoever lies may lie about those too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsilo.engine.robust.pieces import Models
from fedsilo.methods.state import Tree


def trimmed(models: Models, names: Sequence[str], left_out: int) -> tuple[Tree, np.ndarray]:
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
            order = np.argsort(numbers, axis=0, kind="stable")[left_out : models.silos - left_out]
            found[place] = np.take_along_axis(numbers, order, axis=0).mean(axis=0)
            counted += np.bincount(order.ravel(), minlength=models.silos)
            coordinates += numbers.shape[1]
        whole = found if dtype.kind == "f" else np.trunc(found + 1e-9)
        tree[name] = whole.astype(dtype).reshape(models.shape(name))
    return tree, counted / max(coordinates, 1)


def median_trim(silos: int) -> int:
    """How many values are left out on each side of a median."""
    return (silos - 1) // 2
