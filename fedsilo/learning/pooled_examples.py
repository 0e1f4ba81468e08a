"""Several sets of examples as one, where one machine holds them all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedsilo.learning.examples import Examples, StoredFeatures, scaled_features


class PooledFeatures:
    """Features of several files or folders, one after the other, which stay there.

    :param parts: of one shape of examples and one element type.
    """

    def __init__(self, parts: Sequence[StoredFeatures]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])
        self.dtype = parts[0].dtype
        self.shape = (int(self._ends[-1]), *parts[0].shape[1:])
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, index: np.ndarray) -> np.ndarray:
        """The features at these places, in their order; called from several threads at once."""
        found = np.empty((len(index), *self.shape[1:]), self.dtype)
        owner = np.searchsorted(self._ends, index, side="right")
        for number in np.unique(owner).tolist():
            own = owner == number
            begin = self._ends[number] - len(self._parts[number])
            found[own] = self._parts[number].read(index[own] - begin)
        return found


def pooled_examples(parts: Sequence[Examples]) -> Examples:
    """The examples of all parts, in their order; features that all stay in their files stay there."""
    labels = torch.cat([part.labels for part in parts])
    stored = [part.pool for part in parts if not isinstance(part.pool, Tensor)]
    types = {part.pool.dtype for part in parts}
    if len(stored) == len(parts) and len(types) == 1:
        begins = np.cumsum([0, *map(len, stored)])[:-1].tolist()
        rows = [_rows(part) + begin for part, begin in zip(parts, begins, strict=True)]
        return Examples(PooledFeatures(stored), labels, torch.cat(rows))
    features = [part.features for part in parts]
    if len({each.dtype for each in features}) > 1:  # bytes beside numbers, which a batch would scale
        features = [scaled_features(each) for each in features]
    return Examples(torch.cat(features), labels)


def _rows(examples: Examples) -> Tensor:
    if examples.rows is not None:
        return examples.rows
    return torch.arange(len(examples), device=examples.labels.device)
