"""Labelled examples on the device that computes, and the order in which they are learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsilo.errors import DataInvalid


@dataclass(frozen=True)
class Examples:
    """Labelled examples, all of them on the device that computes.

    :param pool: (n, *input shape), uint8 (scaled by 1/255 when a batch is taken) or float32; or, with `rows`, features
        of which these examples are some.
    :param labels: (n,), int64.
    :param rows: (n,), int64: where in the pool each example's features are, so that several silos of one process hold
        a dataset that they divide once; None where they own the pool.
    """

    pool: Tensor
    labels: Tensor
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> Tensor:
        """(n, *input shape), as the pool has them."""
        return self.pool if self.rows is None else self.pool[self.rows]

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Features in float32 and labels of the examples that `index` names, in its order."""
        features = self.pool[index if self.rows is None else self.rows[index]]
        if features.dtype == torch.uint8:
            # Kept as bytes until here: a quarter of the device memory.
            features = features.float().div_(255)
        return features, self.labels[index]

    def take(self, index: np.ndarray) -> Examples:
        """Some of these examples, over the same pool."""
        chosen = torch.tensor(index, dtype=torch.int64, device=self.labels.device)
        rows = chosen if self.rows is None else self.rows[chosen]
        return Examples(self.pool, self.labels[chosen], rows)

    @classmethod
    def from_arrays(cls, features: np.ndarray, labels: np.ndarray, device: torch.device | str) -> Examples:
        """Copy arrays to the device; read-only and memory-mapped ones too.

        :raises DataInvalid: wrong dtype, labels that are not one per example.
        """
        if features.dtype not in (np.uint8, np.float32):
            raise DataInvalid(f"examples: features: dtype {features.dtype}: convert them to uint8 or float32")
        if not np.issubdtype(labels.dtype, np.integer):
            raise DataInvalid(
                f"examples: labels: dtype {labels.dtype}: convert them to integers, one class per example"
            )
        if labels.ndim != 1 or features.ndim < 2 or len(labels) != len(features):
            raise DataInvalid(
                f"examples: shapes: features {features.shape}, labels {labels.shape}: give features "
                "(n, ...) and one label for each, (n,)"
            )
        # torch.tensor copies, so that a read-only map will do; it takes no negative strides.
        return cls(
            torch.tensor(np.ascontiguousarray(features), device=device),
            torch.tensor(np.ascontiguousarray(labels), dtype=torch.int64, device=device),
        )


def used_per_epoch(n: int, batch_size: int, *, drop_last: bool = False, skip_single: bool = False) -> int:
    """How many of `n` examples a pass uses: all, or all but an incomplete last batch that is left out.

    The only batch of a small set is never dropped by `drop_last`.
    """
    tail = n % batch_size
    dropped = (drop_last and n > tail) or (skip_single and tail == 1)
    return n - tail if dropped else n


def batches(
    n: int,
    batch_size: int,
    seed: int,
    shuffle: bool = True,
    drop_last: bool = False,
    *,
    skip_single: bool = False,
    device: torch.device | str = "cpu",
) -> Iterator[Tensor]:
    """Index tensors of successive batches, pass after pass without end.

    The order comes from a CPU generator, so that it is the same whatever device computes.

    :param skip_single: leave out a last batch of one sample.
    """
    generator = torch.Generator().manual_seed(seed)
    used = used_per_epoch(n, batch_size, drop_last=drop_last, skip_single=skip_single)
    while used:
        order = torch.randperm(n, generator=generator) if shuffle else torch.arange(n)
        yield from torch.split(order[:used].to(device), batch_size)
