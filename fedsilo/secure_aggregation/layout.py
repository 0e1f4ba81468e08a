"""One vector of integers for all numbers of an update, so that the sum of such vectors is the sum of the updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

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

TOTAL_BOUND = 2.0**40
"""Likewise of an element of a tensor that is added as it is, such as a number of examples or pixels."""

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


class OverSilos(NamedTuple):
    """What silos state of a figure, each of which counts as one.

    :ivar spread: their standard deviation.
    :ivar silos: that stated it.
    """

    mean: float
    spread: float
    silos: int


@dataclass(frozen=True)
class Summed:
    """What the sum of some silos' vectors says.

    :param silos: how many they are.
    :param samples: of all of them.
    :param metrics: means over the silos that stated them, weighted by samples.
    :param alike: figures in which silos count alike.
    :param tensors: totals, and means by the job's rule; of a class's tensor over the silos that sent it, if any did.
    :param quotients: sums of w_k / m_k times each tensor, where a quotient is summed, over the sum of w_k if that is by
        the job's rule.
    :param quotient_weight: the sum of w_k / m_k, likewise.
    """

    silos: int
    samples: int
    metrics: Mapping[str, float]
    alike: Mapping[str, OverSilos]
    tensors: Mapping[str, np.ndarray]
    quotients: Mapping[str, np.ndarray] = field(default_factory=dict)
    quotient_weight: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Where the numbers of an update lie in its vector: its samples, its metrics, its tensors, and those of a quotient.

    - A metric m goes in as n m beside the number of samples n, or where silos count alike as m, m^2 and 1; as zeros
      where it is not stated.
    - Element x of a tensor goes in as w x, where w is n or 1, and of a total as it is.
    - That of a class's tensor as c x behind c, which is the number that counts its examples, or 1 if none does; as
      zeros where the silo has left it out.
    - A quotient as w / m, and then w x / m for each floating-point element x of the tensors that every silo sends.

    :param contract: of the update that goes in.
    :param silos: that are added at most.
    :param weights: the job's rule of averaging.
    :param alike: metrics in which silos count alike.
    """

    contract: Contract
    silos: int
    weights: Weights
    quotient: Quotient | None = None
    alike: frozenset[str] = frozenset()

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
        for name, start in self._figures():
            value = metrics.get(name)
            if value is None or not abs(value) <= VALUE_BOUND:
                continue
            if name in self.alike:
                self._put(vector[start:], name, self._squares, np.array([value, value**2, 1.0]))
            else:
                self._put(vector[start:], name, self._metrics, np.array([samples * value]))
                vector[start + 1] = vector[0]
        weight = float(samples) if self.weights == "samples" else 1.0
        for block, start in self._places():
            if self._is_averaged(block):
                self._put_tensor(vector[start:], block, self.weights, weight, tensor)
            elif block.total and block.name in names:
                self._put_tensor(vector[start:], block, "uniform", 1.0, tensor)
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
        if weight == 0 and any(self._is_averaged(block) for block in self.contract.blocks):
            raise MethodError("no silo states any sample, so their updates cannot be weighted")
        metrics, alike = self._decoded_figures(total)
        tensors = {}
        for block, start in self._places():
            divisor, first = weight, start
            if block.total:
                divisor = 1.0
            elif block.label is not None:
                divisor, first = float(self._counts.decode(total[start : start + 1])[0]), start + 1
            if divisor:
                tensors[block.name] = self._decoded(total[first:], block, self._weights_of(block), divisor)
        return self._with_quotients(Summed(silos, samples, metrics, alike, tensors), total, weight)

    def _decoded_figures(self, total: np.ndarray) -> tuple[dict[str, float], dict[str, OverSilos]]:
        metrics, alike = dict[str, float](), dict[str, OverSilos]()
        for name, start in self._figures():
            if name in self.alike:
                added, squares, count = self._squares.decode(total[start : start + 3])
                if count:
                    mean = float(added / count)
                    spread = math.sqrt(max(float(squares / count) - mean**2, 0.0))
                    alike[name] = OverSilos(mean, spread, int(count))
            elif count := self._counts.decode(total[start + 1 : start + 2])[0]:
                metrics[name] = float(self._metrics.decode(total[start : start + 1])[0] / count)
        return metrics, alike

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
        return self._first_tensor + own + sum(spec.size for spec in self.specs)

    @property
    def _first_tensor(self) -> int:
        return 1 + sum(self._numbers(name) for name in self.contract.metrics)

    def _numbers(self, metric: str) -> int:
        return 3 if metric in self.alike else 2

    def _figures(self) -> Iterator[tuple[str, int]]:
        start = 1
        for name in self.contract.metrics:
            yield name, start
            start += self._numbers(name)

    def _places(self) -> Iterator[tuple[ExpectedBlock, int]]:
        start = self._first_tensor
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
        return [block for block in self.contract.blocks if self._is_averaged(block) and _is_float(block)]

    @staticmethod
    def _is_averaged(block: ExpectedBlock) -> bool:
        """Whether every silo sends it, for a mean by the job's rule."""
        return block.label is None and not block.total

    @staticmethod
    def _has_own_weight(block: ExpectedBlock) -> bool:
        return block.label is not None and not block.total

    @property
    def _quotient_weights(self) -> Weights:
        assert self.quotient is not None, "asked for only where there is one"
        return self.quotient.weights or self.weights

    def _weights_of(self, block: ExpectedBlock) -> Weights:
        if self._is_averaged(block):
            return self.weights
        return "uniform" if block.counted is None else "samples"

    @cached_property
    def _counts(self) -> FixedPoint:
        return FixedPoint(self.silos, SAMPLES_BOUND)

    @cached_property
    def _metrics(self) -> FixedPoint:
        return FixedPoint(self.silos, SAMPLES_BOUND * VALUE_BOUND)

    @cached_property
    def _squares(self) -> FixedPoint:
        return FixedPoint(self.silos, VALUE_BOUND**2)

    def _weight_point(self, weights: Weights) -> FixedPoint:
        return FixedPoint(self.silos, _largest(weights))

    def _tensor_point(self, block: ExpectedBlock, weights: Weights) -> FixedPoint:
        if block.total:
            return FixedPoint(self.silos, TOTAL_BOUND)
        bound = VALUE_BOUND if _is_float(block) else INTEGER_BOUND
        return FixedPoint(self.silos, bound * _largest(weights))

    def _put_of_class(
        self,
        vector: np.ndarray,
        block: ExpectedBlock,
        names: Collection[str],
        tensor: Callable[[str], np.ndarray],
    ) -> None:
        weight = 1.0
        if block.counted is not None:
            if block.counted not in names:
                raise Problem("missing-block", f"block {block.counted}: counts for {block.name}; send both")
            weight = float(tensor(block.counted))
        self._put(vector, f"tensor {block.name}: its weight", self._counts, np.array([weight]))
        self._put_tensor(vector[1:], block, self._weights_of(block), weight, tensor)

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
