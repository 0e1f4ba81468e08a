"""Norms of a linear classifier's class weights."""

from __future__ import annotations

import numpy as np

MIN_NORM = 1e-12
"""Smaller norms are raised to this before they divide."""


def normalised_rows(weight: np.ndarray, power: float = 1.0) -> np.ndarray:
    """W_c / ||W_c||^power of each row: norm one at power 1, as it was at power 0.

    :param weight: (C, d), one row per class.
    """
    norms = np.linalg.norm(weight, axis=1, keepdims=True)
    return np.asarray(weight / np.maximum(norms, MIN_NORM) ** power)
