"""One vector of integers for all numbers of an update, so that the sum of such vectors is the sum of the updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fedsilo.errors import MethodError, Problem
from fedsilo.secure_aggregation.fixed_point import FixedPoint
from fedsilo.wire import Contract
from fedsilo.wire.tensors import DTYPES, TensorSpec

SAMPLES_BOUND = 2.0**24
"""Most samples of one silo."""

VALUE_BOUND = 2.0**13
"""Largest magnitude of a tensor's element that is no integer, and of a metric."""

INTEGER_BOUND = 2.0**24
"""Likewise of an integer, such as BatchNorm's counter of batches."""

PIECE = 1 << 17
"""Numbers that are encoded at a time."""

Weights = Literal["samples", "uniform"]


@dataclass(frozen=True)
class Summed:
    """What the sum of some silos' vectors says.

    :param samples: of all of them.
    :param metrics: means over the silos that stated them, weighted by samples.
    :param tensors: weighted means.
    """

    samples: int
    metrics: Mapping[str, float]
    tensors: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Layout:
    """Where the numbers of an update lie in its vector: samples, then two for each metric, then tensors.

    Element x of a tensor goes in as w x, where w is the number of samples or 1; a metric m as n m beside n, and as two
    zeros where it is not stated.

    :param contract: of the update that goes in.
    :param silos: that are added at most.
    :param weights: rule of averaging.
    """

    contract: Contract
    silos: int
    weights: Weights

    @property
    def specs(self) -> list[TensorSpec]:
        """Of the tensors."""
        return [block.spec for block in self.contract.blocks]

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return 1 + 2 * len(self.contract.metrics) + sum(spec.size for spec in self.specs)

    def encode(
        self, samples: int, metrics: Mapping[str, float], tensor: Callable[[str], np.ndarray]
    ) -> np.ndarray:
        """The (size,) uint64 vector of an update that keeps the contract.

        :param tensor: name -> its values.
        :raises Problem: `out-of-range` for a number beyond its bound.
        """
        vector = np.empty(self.size, np.uint64)
        vector[0] = self._encoded("samples", self._counts, np.array([samples], np.float64))[0]
        for place, name in enumerate(self.contract.metrics):
            value = metrics.get(name)
            stated = value is not None and abs(value) <= VALUE_BOUND
            pair = vector[1 + 2 * place :]
            pair[0] = self._metrics.encode(np.array([samples * value if stated and value else 0.0]))[0]
            pair[1] = vector[0] if stated else 0
        weight = float(samples) if self.weights == "samples" else 1.0
        for spec, start in self._tensors():
            values, point = tensor(spec.name).reshape(-1), self._point(spec)
            for first in range(0, spec.size, PIECE):
                piece = weight * values[first : first + PIECE].astype(np.float64)
                vector[start + first : start + first + piece.size] = self._encoded(
                    f"tensor {spec.name}", point, piece
                )
        return vector

    def decode(self, total: np.ndarray, silos: int) -> Summed:
        """What a (size,) uint64 sum says.

        :param silos: whose vectors are in it.
        :raises MethodError: no silo has stated a sample, by which means are weighted.
        """
        samples = int(self._counts.decode(total[:1])[0])
        weight = float(samples) if self.weights == "samples" else float(silos)
        if weight == 0:
            raise MethodError("no silo states any sample, so their updates cannot be weighted")
        metrics = {}
        for place, name in enumerate(self.contract.metrics):
            pair = total[1 + 2 * place : 3 + 2 * place]
            if count := self._counts.decode(pair[1:])[0]:
                metrics[name] = float(self._metrics.decode(pair[:1])[0] / count)
        tensors = {}
        for spec, start in self._tensors():
            found = np.empty(spec.size, DTYPES[spec.dtype])
            for first in range(0, spec.size, PIECE):
                piece = total[start + first : start + min(first + PIECE, spec.size)]
                found[first : first + PIECE] = self._point(spec).decode(piece) / weight
            tensors[spec.name] = found.reshape(spec.shape)
        return Summed(samples, metrics, tensors)

    @cached_property
    def _counts(self) -> FixedPoint:
        return FixedPoint(self.silos, SAMPLES_BOUND)

    @cached_property
    def _metrics(self) -> FixedPoint:
        return FixedPoint(self.silos, SAMPLES_BOUND * VALUE_BOUND)

    def _point(self, spec: TensorSpec) -> FixedPoint:
        bound = VALUE_BOUND if DTYPES[spec.dtype].kind == "f" else INTEGER_BOUND
        return FixedPoint(self.silos, bound * (SAMPLES_BOUND if self.weights == "samples" else 1.0))

    def _tensors(self) -> Iterator[tuple[TensorSpec, int]]:
        start = 1 + 2 * len(self.contract.metrics)
        for spec in self.specs:
            yield spec, start
            start += spec.size

    @staticmethod
    def _encoded(what: str, point: FixedPoint, values: np.ndarray) -> np.ndarray:
        try:
            return point.encode(values)
        except Problem as problem:
            raise Problem(problem.code, f"{what}: {problem.detail}") from None
