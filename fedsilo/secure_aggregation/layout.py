"""One vector of integers for all numbers of an update, so that the sum of such vectors is the sum of the updates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.secure_aggregation.figures import SampleTotal, SummedMetric, UnweightedMetric
from fedsilo.secure_aggregation.moments import Deviations, FeatureMean
from fedsilo.secure_aggregation.parts import (
    AveragedTensor,
    ClassTensor,
    PlainUpdate,
    QuotientPart,
    SumResult,
    Total,
    VectorPart,
    Weights,
    is_float,
)
from fedsilo.secure_aggregation.plausibility import implausible_sum_problem
from fedsilo.secure_aggregation.wide import UNIT
from fedsilo.wire import Contract, ExpectedBlock
from fedsilo.wire.combine import BlockMean, BlockSum, CountedMean, Quotient, SquaredDeviations
from fedsilo.wire.contract import METRIC_RANGE
from fedsilo.wire.tensors import TensorSpec


@dataclass(frozen=True)
class Layout:
    """Where the numbers of an update lie in its vector: its samples, metrics and tensors, and those of a quotient.

    :param contract: of the update that goes in.
    :param silos: that are added at most.
    :param weights: the job's rule of averaging.
    """

    contract: Contract
    silos: int
    weights: Weights

    @property
    def model(self) -> list[TensorSpec]:
        """Tensors of the model that a silo sends, if it does: those that norm clipping is of."""
        return [block.spec for block in self.contract.blocks if block.kind == "model"]

    @cached_property
    def quotient(self) -> Quotient | None:
        """By what the tensors of the model are divided, and added beside their mean, if they are.

        :raises MethodError: the contract has blocks over several quotients.
        """
        found = {block.combine.over for block in self.contract.blocks if isinstance(block.combine, BlockMean)}
        if len(over := found - {None}) > 1:
            names = ", ".join(sorted(quotient.metric for quotient in over if quotient is not None))
            raise MethodError(f"blocks are averaged over {names}; a step has one quotient")
        return next(iter(over), None)

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return sum(part.size for part in self._parts)

    def encode(
        self,
        samples: int,
        metrics: Mapping[str, float],
        names: Collection[str],
        tensor: Callable[[str], np.ndarray],
        sent: Mapping[str, np.ndarray],
    ) -> np.ndarray:
        """The (size,) uint64 vector of an update that keeps the contract.

        :param names: of the tensors that it has.
        :param tensor: name -> its values.
        :param sent: the model that the silos were sent, from which changes are counted.
        :raises Problem: `out-of-range` for a number beyond its bound, `missing-block` for a class's tensor without the
            number that counts its examples.
        """
        update, vector = PlainUpdate(samples, metrics, names, tensor, sent), np.zeros(self.size, np.uint64)
        for part, start in self._places():
            part.encode_into(vector[start : start + part.size], update)
        return vector

    def decode(self, total: np.ndarray, silos: int, sent: Mapping[str, np.ndarray]) -> SumResult:
        """What a (size,) uint64 sum says.

        :param silos: whose vectors are in it.
        :param sent: the model that they were sent.
        :raises MethodError: no silo has stated a sample, by which means are weighted.
        :raises Problem: `out-of-range` for a sum that so many silos cannot have: one of them has not masked its update
            as the protocol says, or was sent something else than the others.
        """
        summed = SumResult(silos, sent)
        for part, start in self._places():
            if isinstance(part, AveragedTensor) and summed.weight(part.weights) == 0:
                raise MethodError("no silo states any sample, so their updates cannot be weighted")
            part.decode_from(total[start : start + part.size], summed)
        self._require_metrics_in_range(summed)
        return summed

    def _require_metrics_in_range(self, summed: SumResult) -> None:
        """Return if each mean of a metric lies where every silo's value must, but for the rounding of the sum."""
        means = summed.metrics | {name: found.mean for name, found in summed.alike.items()}
        for name, mean in means.items():
            least, most = self.contract.ranges.get(name, METRIC_RANGE)
            rounding = float(UNIT) * self.silos
            if not least - rounding <= mean <= most + rounding:
                raise implausible_sum_problem(f"the mean of {name}", mean, summed.silos, least, most)

    def _places(self) -> Iterator[tuple[VectorPart, int]]:
        start = 0
        for part in self._parts:
            yield part, start
            start += part.size

    @cached_property
    def _parts(self) -> list[VectorPart]:
        parts: list[VectorPart] = [SampleTotal(self.silos)]
        for name in self.contract.metrics:
            parts.append(
                UnweightedMetric(self.silos, name)
                if name in self.contract.alike
                else SummedMetric(self.silos, name)
            )
        parts += [self._part_of(block) for block in self.contract.blocks]
        if self.quotient is not None:
            own = self.quotient.weights
            divided = tuple(
                part.block
                for part in parts
                if isinstance(part, AveragedTensor)
                and part.block.combine == BlockMean(self.quotient)
                and is_float(part.block.dtype)
            )
            metric = self.quotient.metric
            parts.append(QuotientPart(self.silos, metric, divided, own or self.weights, own is not None))
        return parts

    def _part_of(self, block: ExpectedBlock) -> VectorPart:
        match block.combine:
            case BlockSum():
                return Total(self.silos, block)
            case _ if block.label is not None:
                return ClassTensor(self.silos, block)
            case SquaredDeviations(mean):
                (means,) = (other for other in self.contract.blocks if other.name == mean)
                return Deviations(self.silos, block, means)
            case CountedMean():
                return FeatureMean(self.silos, block)
            case _:
                return AveragedTensor(self.silos, block, self.weights)
