"""Scores at the aggregator: the model for silos to score, what their scores say together, and scores of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.methods.interface import EVALUATE, Assignment, Exchange
from fedsilo.methods.method import Method
from fedsilo.methods.schedule import is_evaluated
from fedsilo.methods.state import State
from fedsilo.transforms.evaluation.record import evaluation_record
from fedsilo.transforms.transform import Aggregator, AggregatorSide, Broadcast, ReceivedExchange


class EvaluationAggregatorSide(AggregatorSide):
    """The evaluation's own exchanges, and the aggregator's test set where it holds one."""

    def __init__(self, method: Method, place: Aggregator) -> None:
        self._method, self._spec, self._place = method, method.spec, place
        self._by_silos = self._method.models.shared.is_model and self._spec.evaluation.test_dataset is None
        # Those of the silos, not of the aggregator.
        self._metrics = ChosenMetrics.of_job(self._spec) if self._by_silos else ChosenMetrics.of(None)

    @override
    def assign(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Broadcast:
        """The model as silos share it; nothing where they score their own only."""
        if not self._by_silos:
            return Broadcast(state, dict.fromkeys(silos, Assignment()))
        snapshot = self._place.model(state)
        assignment = Assignment({"model": EVALUATE}, snapshot.settings)
        return Broadcast(state.with_trees(**{EVALUATE: snapshot.tree}), dict.fromkeys(silos, assignment))

    @override
    def figures(self, received: ReceivedExchange) -> dict[str, Any]:
        """What the silos' scores say together."""
        asked = self._place.context.silos if self._by_silos else ()
        return evaluation_record(received.updates, self._metrics, self._spec.data.class_count, asked)

    @override
    def model_scores(self, state: State, exchange: Exchange, rounds: int) -> Mapping[str, Any]:
        """Scores on the aggregator's test set, after rounds that are evaluated."""
        due = is_evaluated(self._spec, exchange.round, rounds)
        test_set = self._place.test_set
        if test_set is None or not due or not self._method.models.shared.is_model:
            return {}
        return test_set.score(self._place.trained(state)).record()
