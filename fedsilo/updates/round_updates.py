"""Folding a round's updates into one tree, in about one model of memory.

Every element is summed over the silos in the order of the job's references, so that the sum is the same bytes
whatever order the updates arrived in and however many threads add. What is read of a file lies in small buffers, so
that peak memory does not grow with the number of silos. Whether a sum is finite is checked on the method's new state,
in `fedsilo.methods.state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from math import fsum, isclose
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from typing_extensions import override

from fedsilo.methods.reading import mean_weights
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload
from fedsilo.secure_aggregation.parts import CrossSiloStatistics
from fedsilo.updates.combination import combine_blocks
from fedsilo.updates.summation import FlatTensor, StoredTensor, Sum, add_included
from fedsilo.wire import UpdateHeader, open_update
from fedsilo.wire.combine import Quotient

MAX_OPEN_FILES = 64
"""Updates that are open at a time: a process may have only so many files open, and every silo has a connection."""


class RoundUpdates(ABC):
    """The accepted updates of a round and their sum; subclasses know where they are stored.

    :ivar silos: whose updates count, in the order of the job's references.
    :cvar together: whether it is one update, of all silos together.
    :cvar most_open: updates that are open at once while they are summed.
    """

    silos: tuple[str, ...]
    together: ClassVar[bool] = False
    most_open: ClassVar[int] = MAX_OPEN_FILES

    @property
    def count(self) -> int:
        """How many silos' updates count."""
        return len(self.silos)

    def only(self, silo: str) -> Self:
        """One silo's update, as if it were the only one."""
        alone = copy(self)
        alone.silos = (silo,)
        return alone

    @abstractmethod
    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""

    @abstractmethod
    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""

    @abstractmethod
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind."""

    @abstractmethod
    def open_tensors(self, silo: str, kind: str) -> AbstractContextManager[Mapping[str, FlatTensor]]:
        """The silo's tensors of that kind by name, to be read in any thread inside the `with` block."""

    @abstractmethod
    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied."""

    def combine(self, payloads: Sequence[Payload], rule: str) -> Tree:
        """Combine tensors over the silos that sent them, each as its payload says (`Sums.combine`)."""
        return combine_blocks(self, payloads, rule)

    def quotient(self, over: Quotient, rule: str, scale: float, distance: float) -> tuple[Tree, float]:
        """Sum of v_k times each tensor of the silos' models, and the sum of v_k = scale p_k / (m_k distance).
        `fedsilo.methods.reading.Sums.quotient` describes it; `rule` is that of averaging, for p_k.
        """
        parts = dict.fromkeys(self.silos, 1.0) if over.weights else mean_weights(self, rule, self.silos)
        weights = {
            silo: scale * part / (self.metrics(silo)[over.metric] * distance) for silo, part in parts.items()
        }
        return self.weighted_sum("model", weights), sum(weights.values())

    def mean_metric(self, metric: str, rule: str) -> float:
        """Average of a metric that every silo states, by a rule of averaging."""
        shares = mean_weights(self, rule, self.silos)
        return sum(shares[silo] * self.metrics(silo)[metric] for silo in self.silos)

    def over_silos(self, *metrics: str) -> CrossSiloStatistics | None:
        """Mean and spread of a metric over the silos that state it, each of which counts as one; None if none does.

        :param metrics: its names, of which a silo uses one.
        """
        values = [
            self.metrics(silo)[name] for silo in self.silos for name in metrics if name in self.metrics(silo)
        ]
        return (
            CrossSiloStatistics(float(np.mean(values)), float(np.std(values)), len(values))
            if values
            else None
        )

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """Sum over silos of weight times each tensor of that kind.

        Integer tensors (BatchNorm's step counter) are summed in float64 and truncated, as averaging codes do. Where the
        weights add up to one, the sum is a mean, and what is the same in all silos is the same in it, to the bit.
        """
        silos = [silo for silo in self.silos if silo in weights]
        mean = isclose(fsum(weights[silo] for silo in silos), 1, rel_tol=1e-9)
        sums: dict[str, Sum] = {}
        for first in range(0, len(silos), self.most_open):
            with ExitStack() as files:
                for silo in silos[first : first + self.most_open]:
                    for name, tensor in files.enter_context(self.open_tensors(silo, kind)).items():
                        if name not in sums:
                            sums[name] = Sum(name, tensor.shape, tensor.dtype, mean)
                        sums[name].include(tensor, weights[silo])
                add_included(list(sums.values()), first + self.most_open >= len(silos))
        return {name: total.result() for name, total in sums.items()}


class StoredUpdates(RoundUpdates):
    """Accepted updates that are stored in files.

    :param paths: silo -> file, in the order of the job's references.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self.silos = tuple(paths)
        self._paths = dict(paths)
        self._headers: dict[str, UpdateHeader] = {}
        for silo, path in self._paths.items():
            with open_update(path) as update:
                self._headers[silo] = update.header

    @override
    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""
        return self._headers[silo].samples

    @override
    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""
        return self._headers[silo].metrics

    @override
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind."""
        return tuple(entry.name for entry in self._headers[silo].tensors if entry.kind == kind)

    @contextmanager
    @override
    def open_tensors(self, silo: str, kind: str) -> Iterator[Mapping[str, FlatTensor]]:
        """The silo's tensors of that kind by name, read from its file."""
        with open_update(self._paths[silo]) as update:
            yield {name: StoredTensor(update, update.entry(name)) for name in update.names(kind)}

    @override
    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied."""
        with open_update(self._paths[silo]) as update:
            return {name: update.tensor(name) for name in update.names(kind)}
