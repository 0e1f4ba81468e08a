"""A round's updates in memory, as the server half reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from typing_extensions import override

from fedsilo.methods.state import Tree
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.updates.summation import FlatTensor, HeldTensor


class HeldUpdate(Protocol):
    """An update, or a sum of several, in memory."""

    @property
    def samples(self) -> int:
        """Sample count that it states."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Scalar metrics that it states, by name."""

    @property
    def blocks(self) -> Mapping[str, Tree]:
        """Payload kind -> tensors."""


class InMemoryUpdates(RoundUpdates):
    """The updates that count.

    :param updates: silo -> update, in the order of the job's references.
    """

    def __init__(self, updates: Mapping[str, HeldUpdate]) -> None:
        self.silos = tuple(updates)
        self._updates = updates

    @override
    def samples(self, silo: str) -> int:
        """Sample count that the silo states."""
        return self._updates[silo].samples

    @override
    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo."""
        return self._updates[silo].metrics

    @override
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind."""
        return tuple(self._blocks(silo, kind))

    @contextmanager
    @override
    def open_tensors(self, silo: str, kind: str) -> Iterator[Mapping[str, FlatTensor]]:
        """The silo's tensors of that kind by name."""
        yield {name: HeldTensor(array) for name, array in self._blocks(silo, kind).items()}

    @override
    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied."""
        return {name: np.array(array) for name, array in self._blocks(silo, kind).items()}

    def _blocks(self, silo: str, kind: str) -> Mapping[str, np.ndarray]:
        return self._updates[silo].blocks.get(kind, {})
