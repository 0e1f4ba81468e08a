"""One vector of integers for all numbers of an update, so that the sum of such vectors is the sum of the updates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from fedsilo.errors import MethodError, Problem
from fedsilo.secure_aggregation.fixed_point import FixedPoint
from fedsilo.wire import Contract, ExpectedBlock
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
class Quotient:
    """What a server half reads beside the mean: the sum over silos of w_k / m_k times each tensor of its model.

    :param metric: m_k, at least 1 in every update.
    :param weights: of w_k: `uniform`, 1 each, or None for the job's rule.
    """

    metric: str
    weights: Literal["uniform"] | None = None


@dataclass(frozen=True)
class Summed:
    """What the sum of some silos' vectors says.

    :param silos: how many they are.
    :param samples: of all of them.
    :param metrics: means over the silos that stated them, weighted by samples.
    :param tensors: means by the job's rule; of a class's tensor over the silos that sent it, see
        `ExpectedBlock.counted`, if there is any.
    :param quotients: sums of w_k / m_k times each tensor, where a quotient is summed, over the sum of w_k if that is by
        the job's rule.
    :param quotient_weight: the sum of w_k / m_k, likewise.
    """

    silos: int
    samples: int
    metrics: Mapping[str, float]
    tensors: Mapping[str, np.ndarray]
    quotients: Mapping[str, np.ndarray] = field(default_factory=dict)
    quotient_weight: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Where the numbers of an update lie in its vector: its samples, its metrics, its tensors, and those of a quotient.

    - A metric m goes in as n m beside the number of samples n, and as two zeros where it is not stated.
    - Element x of a tensor goes in as w x, where w is n or 1.
    - That of a class's tensor as c x behind c, which is the number that counts its examples, or 1 if none does; as
      zeros where the silo has left it out. A number that counts goes in as it is.
    - A quotient as w / m, and then w x / m for each floating-point element x of the tensors that every silo sends.

    :param contract: of the update that goes in.
    :param silos: that are added at most.
    :param weights: the job's rule of averaging.
    """

    contract: Contract
    silos: int
    weights: Weights
    quotient: Quotient | None = None

    @property
    def specs(self) -> list[TensorSpec]:
        """Of the tensors."""
        return [block.spec for block in self.contract.blocks]

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        if self.quotient is None:
            return self._end
        return self._end + 1 + sum(block.spec.size for block in self._divided)

    def encode(
        self,
        samples: int,
        metrics: Mapping[str, float],
        names: Collection[str],
        tensor: Callable[[str], np.ndarray],
    ) -> np.ndarray:
        """The (size,) uint64 vector of an update that keeps the contract.

        :param names: of the tensors that it has.
        :param tensor: name -> its values.
        :raises Problem: `out-of-range` for a number beyond its bound, `missing-block` for a class's tensor without the
            number that counts its examples.
        """
        vector = np.zeros(self.size, np.uint64)
        self._put(vector, "samples", self._counts, np.array([float(samples)]))
        for place, name in enumerate(self.contract.metrics):
            value = metrics.get(name)
            stated = value is not None and abs(value) <= VALUE_BOUND
            pair = vector[1 + 2 * place :]
            pair[0] = self._metrics.encode(np.array([samples * value if stated and value else 0.0]))[0]
            pair[1] = vector[0] if stated else 0
        weight = float(samples) if self.weights == "samples" else 1.0
        for block, start in self._places():
            if block.label is None:
                self._put_tensor(vector[start:], block, self.weights, weight, tensor)
            elif block.name in names:
                self._put_of_class(vector[start:], block, names, tensor)
        if self.quotient is not None:
            part = (1.0 if self.quotient.weights else weight) / metrics[self.quotient.metric]
            weights = self._quotient_weights
            self._put(vector[self._end :], "weight", self._weight_point(weights), np.array([part]))
            for block, start in self._divided_places():
                self._put_tensor(vector[start:], block, weights, part, tensor)
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
        for block, start in self._places():
            divisor, first = weight, start
            if block.name in self._counters:
                divisor = 1.0 if total[start] else 0.0
            elif block.label is not None:
                divisor, first = float(self._counts.decode(total[start : start + 1])[0]), start + 1
            if divisor:
                weights = self.weights if block.label is None else self._class_weights(block)
                tensors[block.name] = self._decoded(total[first:], block, weights, divisor)
        return self._with_quotients(Summed(silos, samples, metrics, tensors), total, weight)

    def _with_quotients(self, summed: Summed, total: np.ndarray, weight: float) -> Summed:
        if self.quotient is None:
            return summed
        divisor = 1.0 if self.quotient.weights else weight
        weights = self._quotient_weights
        part = self._weight_point(weights).decode(total[self._end : self._end + 1])[0]
        quotients = {
            block.name: self._decoded(total[start:], block, weights, divisor)
            for block, start in self._divided_places()
        }
        return replace(summed, quotients=quotients, quotient_weight=float(part) / divisor)

    @property
    def _end(self) -> int:
        """Where a quotient begins."""
        own = sum(self._has_own_weight(block) for block in self.contract.blocks)
        return 1 + 2 * len(self.contract.metrics) + own + sum(spec.size for spec in self.specs)

    def _places(self) -> Iterator[tuple[ExpectedBlock, int]]:
        start = 1 + 2 * len(self.contract.metrics)
        for block in self.contract.blocks:
            yield block, start
            start += self._has_own_weight(block) + block.spec.size

    def _divided_places(self) -> Iterator[tuple[ExpectedBlock, int]]:
        start = self._end + 1
        for block in self._divided:
            yield block, start
            start += block.spec.size

    @property
    def _divided(self) -> list[ExpectedBlock]:
        return [block for block in self.contract.blocks if block.label is None and _is_float(block)]

    @cached_property
    def _counters(self) -> frozenset[str]:
        """Names of the tensors that count examples of a class."""
        return frozenset(block.counted for block in self.contract.blocks if block.counted is not None)

    def _has_own_weight(self, block: ExpectedBlock) -> bool:
        return block.label is not None and block.name not in self._counters

    @property
    def _quotient_weights(self) -> Weights:
        assert self.quotient is not None, "asked for only where there is one"
        return self.quotient.weights or self.weights

    @staticmethod
    def _class_weights(block: ExpectedBlock) -> Weights:
        return "uniform" if block.counted is None else "samples"

    @cached_property
    def _counts(self) -> FixedPoint:
        return FixedPoint(self.silos, SAMPLES_BOUND)

    @cached_property
    def _metrics(self) -> FixedPoint:
        return FixedPoint(self.silos, SAMPLES_BOUND * VALUE_BOUND)

    def _weight_point(self, weights: Weights) -> FixedPoint:
        return FixedPoint(self.silos, _largest(weights))

    def _tensor_point(self, block: ExpectedBlock, weights: Weights) -> FixedPoint:
        bound = VALUE_BOUND if _is_float(block) else INTEGER_BOUND
        return FixedPoint(self.silos, bound * _largest(weights))

    def _put_of_class(
        self,
        vector: np.ndarray,
        block: ExpectedBlock,
        names: Collection[str],
        tensor: Callable[[str], np.ndarray],
    ) -> None:
        if block.name in self._counters:
            self._put_tensor(vector, block, "uniform", 1.0, tensor)
            return
        weight = 1.0
        if block.counted is not None:
            if block.counted not in names:
                raise Problem("missing-block", f"block {block.counted}: counts for {block.name}; send both")
            weight = float(tensor(block.counted))
        self._put(vector, f"tensor {block.name}: its weight", self._counts, np.array([weight]))
        self._put_tensor(vector[1:], block, self._class_weights(block), weight, tensor)

    def _put_tensor(
        self,
        vector: np.ndarray,
        block: ExpectedBlock,
        weights: Weights,
        weight: float,
        tensor: Callable[[str], np.ndarray],
    ) -> None:
        values, point = tensor(block.name).reshape(-1), self._tensor_point(block, weights)
        for first in range(0, values.size, PIECE):
            piece = weight * values[first : first + PIECE].astype(np.float64)
            self._put(vector[first:], f"tensor {block.name}", point, piece)

    @staticmethod
    def _put(vector: np.ndarray, what: str, point: FixedPoint, values: np.ndarray) -> None:
        try:
            vector[: values.size] = point.encode(values)
        except Problem as problem:
            raise Problem(problem.code, f"{what}: {problem.detail}") from None

    def _decoded(
        self, total: np.ndarray, block: ExpectedBlock, weights: Weights, divisor: float
    ) -> np.ndarray:
        spec, point = block.spec, self._tensor_point(block, weights)
        found = np.empty(spec.size, DTYPES[spec.dtype])
        for first in range(0, spec.size, PIECE):
            piece = total[first : min(first + PIECE, spec.size)]
            found[first : first + PIECE] = point.decode(piece) / divisor
        return found.reshape(spec.shape)


def _is_float(block: ExpectedBlock) -> bool:
    return DTYPES[block.dtype].kind == "f"


def _largest(weights: Weights) -> float:
    return SAMPLES_BOUND if weights == "samples" else 1.0
