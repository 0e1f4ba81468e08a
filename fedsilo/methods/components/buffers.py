"""Which tensors of a model are learned, and which are BatchNorm's statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def is_statistic(name: str) -> bool:
    """Whether it is averaged but never stepped: a step of the server could make a variance negative."""
    return name.rpartition(".")[2] in STATISTICS


def is_learned(name: str, tensor: np.ndarray) -> bool:
    """Whether gradients and steps are of it: floating-point numbers that are no statistics."""
    return tensor.dtype.kind == "f" and not is_statistic(name)


def zero_like(tree: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Zeros, in the shape of each learned tensor."""
    return {name: np.zeros_like(array) for name, array in tree.items() if is_learned(name, array)}
