"""What an update puts into the vector that is summed, and what the sum says: one class for each kind of tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.secure_aggregation.changes import changed_numbers, changes_of, sent_tensor
from fedsilo.secure_aggregation.fixed_point import FixedPoint
from fedsilo.secure_aggregation.plausibility import plausible_sums, taken_count
from fedsilo.wire import ExpectedBlock
from fedsilo.wire.combine import CountedMean
from fedsilo.wire.tensors import DTYPES

SAMPLES_BOUND = 2.0**24
"""Most samples of one silo, and most examples of a class that weigh a tensor."""

VALUE_BOUND = 2.0**13
"""Largest magnitude of a tensor's element that is no integer, or of its change."""

INTEGER_BOUND = 2.0**24
"""Largest magnitude of a tensor's element that is an integer, such as a counter of batches, or of its change."""

TOTAL_BOUND = 2.0**40
"""Largest magnitude of an element of a tensor that is added as it is, such as a number of examples or pixels."""

PIECE_NUMBERS = 1 << 17
"""Numbers that are encoded at a time."""

Weights = Literal["samples", "uniform"]


@dataclass(frozen=True)
class PlainUpdate:
    """An update that keeps its contract.

    :param names: of the tensors that it has.
    :param tensor: name -> its values.
    :param sent: the model that the silos were sent, from which changes are counted; without what it lacks.
    """

    samples: int
    metrics: Mapping[str, float]
    names: Collection[str]
    tensor: Callable[[str], np.ndarray]
    sent: Mapping[str, np.ndarray]

    def weight(self, weights: Weights) -> float:
        """How much it counts in a mean by this rule."""
        return float(self.samples) if weights == "samples" else 1.0


class CrossSiloStatistics(NamedTuple):
    """What silos state of a figure, each of which counts as one.

    :ivar spread: their standard deviation.
    :ivar silos: that stated it.
    """

    mean: float
    spread: float
    silos: int


@dataclass
class SumResult:
    """What the sum of some silos' vectors says.

    :ivar silos: how many they are.
    :ivar sent: the model that they were sent, as of `PlainUpdate`.
    :ivar samples: of all of them.
    :ivar metrics: means over the silos that stated them, weighted by samples.
    :ivar alike: figures in which silos count alike.
    :ivar tensors: totals, and means by the job's rule; of a class's tensor over the silos that sent it, if any did.
    :ivar quotients: sums of w_k / m_k times each tensor, where a quotient is summed, over the sum of w_k if that is by
        the job's rule.
    :ivar quotient_weight: the sum of w_k / m_k, over the sum of w_k if that is by the job's rule.
    """

    silos: int
    sent: Mapping[str, np.ndarray]
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    alike: dict[str, CrossSiloStatistics] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    quotients: dict[str, np.ndarray] = field(default_factory=dict)
    quotient_weight: float = 0.0

    def weight(self, weights: Weights) -> float:
        """Sum of the silos' weights by this rule."""
        return float(self.samples if weights == "samples" else self.silos)


class VectorPart(Protocol):
    """Some consecutive numbers of the vector."""

    @property
    def size(self) -> int:
        """How many numbers of the vector the part takes."""

    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        """Fill them, which are zeros, in from an update.

        :raises Problem: `out-of-range` for a number beyond its bound.
        """

    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        """Add to `summed` what their sums say; it has what the parts before have said.

        :raises Problem: `out-of-range` for a sum that so many silos cannot have.
        """


@dataclass(frozen=True)
class Total(VectorPart):
    """A tensor that is added as it is; zeros where it is left out."""

    silos: int
    block: ExpectedBlock

    @property
    @override
    def size(self) -> int:
        return self.block.spec.size

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        if self.block.name in update.names:
            put_tensor(numbers, self.block, self._point, 1.0, update)

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        summed.tensors[self.block.name] = taken_tensor(numbers, self.block, self._point, 1.0, summed.silos)

    @property
    def _point(self) -> FixedPoint:
        return FixedPoint(self.silos, TOTAL_BOUND)


@dataclass(frozen=True)
class AveragedTensor(VectorPart):
    """A tensor that every silo sends: w (x - b) for each element x, where w is n or 1.

    b is what silos were sent, or 0 where that is no tensor of the model: what no silo changes is b again, to the bit.
    """

    silos: int
    block: ExpectedBlock
    weights: Weights

    @property
    @override
    def size(self) -> int:
        return self.block.spec.size

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        base = sent_tensor(self.block, update.sent)
        put_tensor(numbers, self.block, self._point, update.weight(self.weights), update, base)

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        divisor, base = summed.weight(self.weights), sent_tensor(self.block, summed.sent)
        summed.tensors[self.block.name] = taken_tensor(
            numbers, self.block, self._point, divisor, summed.silos, base
        )

    @property
    def _point(self) -> FixedPoint:
        return tensor_point(self.silos, self.block, self.weights)


@dataclass(frozen=True)
class ClassTensor(VectorPart):
    """A class's tensor in the vector: c, then c x for each element x, where c is the number that counts its examples,
    or 1.

    Zeros where the silo has left it out.
    """

    silos: int
    block: ExpectedBlock

    @property
    @override
    def size(self) -> int:
        return 1 + self.block.spec.size

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        """Fill in the class's weight c and its weighted tensor from an update.

        :raises Problem: `missing-block` for a tensor without the number that counts its examples, or `out-of-range`.
        """
        name, counted = self.block.name, count_of(self.block)
        if name not in update.names:
            return
        if counted is not None and counted not in update.names:
            raise Problem("missing-block", f"block {counted}: counts for {name}; send both")
        count = 1.0 if counted is None else float(update.tensor(counted))
        put(numbers, f"tensor {name}: its weight", counts_point(self.silos), np.array([count]))
        put_tensor(numbers[1:], self.block, self._point, count, update)

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        what, silos = f"tensor {self.block.name}: its weight", summed.silos
        if count := taken_count(numbers, what, counts_point(self.silos), silos):
            summed.tensors[self.block.name] = taken_tensor(numbers[1:], self.block, self._point, count, silos)

    @property
    def _point(self) -> FixedPoint:
        return tensor_point(self.silos, self.block, "uniform" if count_of(self.block) is None else "samples")


@dataclass(frozen=True)
class QuotientPart(VectorPart):
    """The weight w over a metric m, at least 1, and w (x - b) / m for each element x of some tensors.

    :param own: whether w is 1 whatever the job's rule, so that the sums are not divided by the sum of w.
    """

    silos: int
    metric: str
    blocks: tuple[ExpectedBlock, ...]
    weights: Weights
    own: bool

    @property
    @override
    def size(self) -> int:
        return 1 + sum(block.spec.size for block in self.blocks)

    @override
    def encode_into(self, numbers: np.ndarray, update: PlainUpdate) -> None:
        part = update.weight(self.weights) / update.metrics[self.metric]
        put(numbers, f"weight over {self.metric}", self._weight, np.array([part]))
        for block, start in self._places():
            point, base = tensor_point(self.silos, block, self.weights), sent_tensor(block, update.sent)
            put_tensor(numbers[start:], block, point, part, update, base)

    @override
    def decode_from(self, numbers: np.ndarray, summed: SumResult) -> None:
        divisor = 1.0 if self.own else summed.weight(self.weights)
        weight = taken_count(numbers, f"weight over {self.metric}", self._weight, summed.silos)
        summed.quotient_weight = weight / divisor
        for block, start in self._places():
            point, base = tensor_point(self.silos, block, self.weights), sent_tensor(block, summed.sent)
            summed.quotients[block.name] = taken_tensor(
                numbers[start:], block, point, divisor, summed.silos, base, summed.quotient_weight
            )

    def _places(self) -> Iterator[tuple[ExpectedBlock, int]]:
        start = 1
        for block in self.blocks:
            yield block, start
            start += block.spec.size

    @property
    def _weight(self) -> FixedPoint:
        return FixedPoint(self.silos, _largest_weight(self.weights))


def count_of(block: ExpectedBlock) -> str | None:
    """The block that says how many examples are behind this one, where that weighs it."""
    return block.combine.count if isinstance(block.combine, CountedMean) else None


def is_float(dtype: str) -> bool:
    """Whether a type of the wire is one of floating-point numbers."""
    return DTYPES[dtype].kind == "f"


def tensor_point(silos: int, block: ExpectedBlock, weights: Weights) -> FixedPoint:
    """The encoding of a tensor's elements, weighted by this rule."""
    bound = VALUE_BOUND if is_float(block.dtype) else INTEGER_BOUND
    return FixedPoint(silos, bound * _largest_weight(weights))


def put(numbers: np.ndarray, what: str, point: FixedPoint, values: np.ndarray) -> None:
    """Encode values at the beginning of some numbers.

    :raises Problem: `out-of-range`, which says of what.
    """
    try:
        numbers[: values.size] = point.encode(values)
    except Problem as problem:
        raise Problem(problem.code, f"{what}: {problem.detail}") from None


def put_tensor(
    numbers: np.ndarray,
    block: ExpectedBlock,
    point: FixedPoint,
    weight: float,
    update: PlainUpdate,
    base: np.ndarray | None = None,
) -> None:
    """Weight times each element of an update's tensor, less what it was where there is a base; errors as `put`."""
    values = update.tensor(block.name).reshape(-1)
    for first in range(0, values.size, PIECE_NUMBERS):
        place = slice(first, first + PIECE_NUMBERS)
        changes = changes_of(values[place], None if base is None else base.reshape(-1)[place])
        put(numbers[first:], f"tensor {block.name}", point, weight * changes)


def taken_tensor(
    numbers: np.ndarray,
    block: ExpectedBlock,
    point: FixedPoint,
    divisor: float,
    silos: int,
    base: np.ndarray | None = None,
    weight: float = 1.0,
) -> np.ndarray:
    """The sums of such elements over a divisor, and weight times the base where there is one; errors as `taken`."""
    spec = block.spec
    found = np.empty(spec.size, DTYPES[spec.dtype])
    for first in range(0, spec.size, PIECE_NUMBERS):
        place = slice(first, min(first + PIECE_NUMBERS, spec.size))
        changes = plausible_sums(numbers[place], f"tensor {block.name}", point, silos) / divisor
        given = None if base is None else base.reshape(-1)[place]
        found[place] = changed_numbers(given, weight, changes, found.dtype)
    return found.reshape(spec.shape)


def counts_point(silos: int) -> FixedPoint:
    """The encoding of numbers of samples."""
    return FixedPoint(silos, SAMPLES_BOUND)


def _largest_weight(weights: Weights) -> float:
    return SAMPLES_BOUND if weights == "samples" else 1.0
