"""Several sets of examples as one: in memory, in files, and some of each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsilo.learning.examples import Examples
from fedsilo.learning.pooled_examples import PooledFeatures, pooled_examples


class ArrayFeatures:
    """Features that stay where they are."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        self.ndim, self.shape, self.dtype = values.ndim, values.shape, values.dtype

    def __len__(self) -> int:
        return len(self._values)

    def read(self, index: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._values[index]
        return found


def values(begin: int, count: int, dtype: type = np.float32) -> np.ndarray:
    return np.arange(begin, begin + 3 * count).reshape(count, 3).astype(dtype)


def labels(count: int) -> torch.Tensor:
    return torch.arange(count)


def contents(examples: Examples, index: list[int]) -> list[list[float]]:
    rows: list[list[float]] = examples.batch(torch.tensor(index))[0].tolist()
    return rows


@pytest.mark.parametrize("lazy", [(False, False, False), (True, True, True), (True, False, True)])
def test_examples_of_all_parts_are_in_their_order(lazy: tuple[bool, ...]) -> None:
    arrays = [values(0, 4), values(100, 0), values(200, 3)]
    parts = [
        Examples(ArrayFeatures(array) if stays else torch.from_numpy(array), labels(len(array)))
        for array, stays in zip(arrays, lazy, strict=True)
    ]
    parts[0] = parts[0].take(np.array([3, 1]))
    pooled = pooled_examples(parts)
    assert isinstance(pooled.pool, PooledFeatures) == all(lazy)
    assert pooled.labels.tolist() == [3, 1, 0, 1, 2]
    assert contents(pooled, [4, 0, 1, 2]) == [[206, 207, 208], [9, 10, 11], [3, 4, 5], [200, 201, 202]]
    assert len(pooled.features) == 5


def test_bytes_beside_numbers_are_scaled_as_a_batch_of_them_would_be() -> None:
    parts = [
        Examples(torch.full((1, 3), 255, dtype=torch.uint8), labels(1)),
        Examples(torch.full((1, 3), 0.5), labels(1)),
    ]
    assert contents(pooled_examples(parts), [0, 1]) == [[1.0] * 3, [0.5] * 3]
    assert contents(pooled_examples(parts[:1] * 2), [1]) == [[1.0] * 3]
