"""The best model at the aggregator: kept after the round that is the best so far, and released at the end."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.methods.interface import Snapshot
from fedsilo.methods.state import State
from fedsilo.transforms.best_model.selection import best_round, best_snapshot, stops_early, with_best
from fedsilo.transforms.transform import AggregatorSide, History


class BestModelAggregatorSide(AggregatorSide):
    """Which round's model a job ends with, and when."""

    def __init__(self, evaluation: EvaluationSpec) -> None:
        self._evaluation = evaluation

    @override
    def complete_round(self, state: State, history: History, model: Callable[[], Snapshot]) -> State:
        """State in which this round's model is the best one, if its scores say so."""
        best, last = best_round(self._evaluation, history), history[-1]["round"]
        return state if best is None or best.round != last else with_best(state, last, model())

    @override
    def final_model(self, state: State, history: History) -> tuple[Snapshot | None, int | None]:
        """The best model, or the last one where no round has been scored."""
        snapshot, best = best_snapshot(state), best_round(self._evaluation, history)
        if snapshot is None or best is None:
            return None, history[-1]["round"]
        return snapshot, best.round

    @override
    def is_over(self, history: History) -> bool:
        """Whether nothing has improved for as long as the job waits."""
        return stops_early(self._evaluation, history)
