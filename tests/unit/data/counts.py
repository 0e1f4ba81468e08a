"""How many samples of each class each silo has: the table by which people judge a partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def count_matrix(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Samples per silo and class, shape (silos, classes), int64.

    :param labels: class of every sample of the whole dataset, shape (N,)
    :param parts: for each silo the indices of its samples
    """
    rows = [np.bincount(labels[part], minlength=classes) for part in parts]
    return np.stack(rows).astype(np.int64)
