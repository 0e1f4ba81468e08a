"""A robust rule in the place of the mean of the silos' models: `spec.aggregation.rule`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.robust_mean.conflicts import check_rule
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Transform


class RobustMeanTransform(Transform):
    """Keeps a few bad models from moving the average."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job with a rule."""
        return cls(method) if method.spec.aggregation.rule is not None else None

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """A method whose aggregate is no mean of models, or too few silos."""
        yield from check_rule(self.method)

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """Aggregator's side with the rule; where only sums are seen, guards clip, and the sum is as any other."""
        from fedsilo.transforms.robust_mean.aggregator import RobustMeanAggregatorSide

        aggregation = self.spec.aggregation
        if aggregation.secure or aggregation.rule is None:
            return AggregatorSide()
        return RobustMeanAggregatorSide(aggregation.rule)
