"""A robust rule at the aggregator, and how much of each silo's model counted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from typing_extensions import override

from fedsilo.api.aggregation import RuleSpec
from fedsilo.transforms.robust_mean.rule import RobustMean
from fedsilo.transforms.transform import AggregatorSide, ReceivedExchange


class RobustMeanAggregatorSide(AggregatorSide):
    """Takes the place of the mean of models in every round of training."""

    def __init__(self, rule: RuleSpec) -> None:
        self._rule = rule

    @override
    def receive(self, received: ReceivedExchange) -> ReceivedExchange:
        """The updates with the rule in the place of their mean."""
        robust = RobustMean(self._rule, received.sent_tree("model"))
        averaged = partial(robust.mean, received.updates)
        return replace(received, averaged=averaged).recording(lambda: {"kept": robust.kept})
