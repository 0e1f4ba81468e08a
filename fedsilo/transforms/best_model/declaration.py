"""The best round's model, and an early end: `spec.evaluation.best`."""

from __future__ import annotations

from typing import Self

from fedsilo.methods.method import Method
from fedsilo.transforms.best_model.selection import BEST
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Transform


class BestModel(Transform):
    """Keeps the best round's model in the job's state, and ends the job when nothing improves."""

    @classmethod
    def of(cls, method: Method) -> Self | None:
        """The transform of a job that names a metric to be the best by."""
        return cls(method) if method.spec.evaluation.best is not None else None

    def owns(self, name: str) -> bool:
        """The tree, and the value beside it."""
        return name == BEST

    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """The selection."""
        from fedsilo.transforms.best_model.aggregator import Selection

        return Selection(self.spec.evaluation)
