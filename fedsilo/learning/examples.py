"""Examples with their targets, in memory or in their files, and the order in which they are learned."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsilo.errors import DataInvalid
from fedsilo.tasks.interface import LearningTask

READ_AHEAD_BYTES = 256 << 20
"""Most bytes of batches that are read before they are needed; one batch is, whatever its size."""

MAX_READERS = 16
"""Most threads that read batches."""


class StoredFeatures(Protocol):
    """Features that stay in their files; `fedsilo.data.sources.LazyFeatures` is one."""

    def __len__(self) -> int: ...

    @property
    def ndim(self) -> int:
        """Number of dimensions, with that of the examples."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all features, (n, *input shape)."""

    @property
    def dtype(self) -> np.dtype:
        """Element type of the features, uint8, float32 or float64."""

    def read(self, index: np.ndarray) -> np.ndarray:
        """The features at these places, in their order; called from several threads at once."""


@dataclass(frozen=True)
class Examples:
    """A set of examples with targets; the targets, and features that are held in memory, are on the device that
    computes.

    :param pool: (n, *input shape), uint8 (scaled by 1/255 when a batch is taken), float32, tokens in int64, or
        float64 that the job's preprocessing makes float32; or, with `rows`, features of which these examples are some.
    :param labels: targets of the learning task; classes (n,), int64, unless it says otherwise.
    :param rows: (n,), int64: where in the pool each example's features are, so that several silos of one process hold
        a dataset that they divide once; None where they own the pool.
    :param persons: (n,), int64: whose each example is, by number, where the job protects persons; None otherwise.
    """

    pool: Tensor | StoredFeatures
    labels: Tensor
    rows: Tensor | None = None
    persons: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> Tensor:
        """(n, *input shape), as the pool has them; all of them in memory, also where they are in files."""
        if not isinstance(self.pool, Tensor):
            return self._features_on_device(self._read(torch.arange(len(self))))
        return self.pool if self.rows is None else self.pool[self.rows]

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Features in float32, or float64, and labels of the examples that `index` names, in its order.

        :raises DataInvalid: features that stay in their files cannot be read.
        """
        if not isinstance(self.pool, Tensor):
            features = self._features_on_device(self._read(index))
        else:
            # An example at a time: indexing with brackets would copy a number at a time.
            places = index if self.rows is None else self.rows.index_select(0, index)
            features = self.pool.index_select(0, places)
        return scaled_features(features), self.labels.index_select(0, index)

    def stream(self, order: Iterable[Tensor]) -> Generator[tuple[Tensor, Tensor, Tensor], None, None]:
        """Each index of `order` with its batch; close it, if it is left before its end.

        Of features that stay in their files, the next batches are read meanwhile, as many as there are processors and
        `READ_AHEAD_BYTES` has room for.
        """
        if isinstance(self.pool, Tensor):
            for index in order:
                yield index, *self.batch(index)
            return
        readers = min(len(os.sched_getaffinity(0)), MAX_READERS)
        coming, pending = iter(order), deque[tuple[Tensor, Future[np.ndarray]]]()
        with ThreadPoolExecutor(readers, thread_name_prefix="read") as threads:
            try:
                ahead = 1
                while True:
                    for following in islice(coming, ahead - len(pending)):
                        pending.append((following, threads.submit(self._read, following)))
                    if not pending:
                        return
                    index, reading = pending.popleft()
                    features = reading.result()
                    ahead = max(1, min(readers + 1, READ_AHEAD_BYTES // max(features.nbytes, 1)))
                    yield index, scaled_features(self._features_on_device(features)), self.labels[index]
            finally:
                threads.shutdown(cancel_futures=True)

    def _read(self, index: Tensor) -> np.ndarray:
        assert not isinstance(self.pool, Tensor)
        if not len(index):
            return np.empty((0, *self.pool.shape[1:]), self.pool.dtype)
        places = index if self.rows is None else self.rows[index]
        return self.pool.read(places.cpu().numpy())

    def _features_on_device(self, features: np.ndarray) -> Tensor:
        return torch.from_numpy(features).to(self.labels.device)

    def take(self, index: np.ndarray) -> Examples:
        """Some of these examples, over the same pool."""
        chosen = torch.tensor(index, dtype=torch.int64, device=self.labels.device)
        rows = chosen if self.rows is None else self.rows[chosen]
        persons = None if self.persons is None else self.persons[index]
        return Examples(self.pool, self.labels[chosen], rows, persons)

    @property
    def records(self) -> int:
        """How many there are of what is protected: persons where the job protects those, otherwise examples."""
        return len(self) if self.persons is None else len(np.unique(self.persons))

    @property
    def parts(self) -> np.ndarray:
        """Part of its record that each example is, (n,); those of a person add up to one."""
        if self.persons is None:
            return np.ones(len(self))
        _, person_of, sizes = np.unique(self.persons, return_inverse=True, return_counts=True)
        return np.asarray(1 / sizes[person_of])

    @classmethod
    def from_arrays(
        cls,
        features: np.ndarray | StoredFeatures,
        labels: np.ndarray,
        device: torch.device | str,
        task: LearningTask | None = None,
    ) -> Examples:
        """Copy arrays to the device, read-only and memory-mapped ones too; lazy features stay where they are.

        :param task: one that has checked the targets; without it they are classes.
        :raises DataInvalid: wrong dtype, labels that are not one per example.
        """
        if task is not None:
            return cls(_pool(features, device), torch.tensor(np.ascontiguousarray(labels), device=device))
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
        pool = _pool(features, device)
        return cls(pool, torch.tensor(np.ascontiguousarray(labels), dtype=torch.int64, device=device))


def _pool(features: np.ndarray | StoredFeatures, device: torch.device | str) -> Tensor | StoredFeatures:
    # torch.tensor copies, so that a read-only map will do; it takes no negative strides.
    if isinstance(features, np.ndarray):
        return torch.tensor(np.ascontiguousarray(features), device=device)
    return features


def scaled_features(features: Tensor) -> Tensor:
    """Features as a network gets them: bytes between 0 and 1, anything else as it is."""
    if features.dtype == torch.uint8:
        # Kept as bytes until here: a quarter of the device memory.
        features = features.float().div_(255)
    return features


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
