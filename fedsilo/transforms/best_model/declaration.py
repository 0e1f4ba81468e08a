"""The best round's model, and an early end: `spec.evaluation.best`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Exchange
from fedsilo.methods.main_metric import whole_evaluation
from fedsilo.methods.method import Method
from fedsilo.transforms.best_model.conflicts import check_choice
from fedsilo.transforms.best_model.selection import BEST
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Transform


class BestModelTransform(Transform):
    """Keeps the best round's model in the job's state, and ends the job when nothing improves."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job that names a metric to be the best by."""
        return cls(method) if method.spec.evaluation.best is not None else None

    @override
    def owns(self, name: str) -> bool:
        """The tree, and the value beside it."""
        return name == BEST

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """A metric that is not reported, or an end too early."""
        return check_choice(self.method)

    @override
    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        from fedsilo.transforms.best_model.aggregator import BestModelAggregatorSide

        return BestModelAggregatorSide(whole_evaluation(self.method))
