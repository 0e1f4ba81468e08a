"""Which round's model a job ends with, and when it ends early: functions of the history.

The history alone says which round is best and for how long nothing has improved, so that an aggregator that is started
again decides as before. The best round's model is the one thing that the history does not have: it stands in the
state, under a name that no method sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.methods.interface import Snapshot
from fedsilo.methods.state import State

BEST = "evaluation.best"
"""Name of the best model's tree, and of the value {round, settings} beside it, in the engine's state of a job."""


@dataclass(frozen=True)
class BestRound:
    """The best of the rounds so far.

    :param metric: by which it is.
    :param round: None while no evaluation has had the metric, as is `value`.
    :param waited: evaluations since the metric last improved by more than `spec.evaluation.minDelta`.
    """

    metric: str
    round: int | None = None
    value: float | None = None
    waited: int = 0


def best_round(evaluation: EvaluationSpec, history: Iterable[Mapping[str, Any]]) -> BestRound | None:
    """The best round of a history; None where the job asks for none.

    Of equal rounds the first is the best.

    :param evaluation: with the metric, see `whole_evaluation`.
    """
    if evaluation.best is None or evaluation.best.metric is None:
        return None
    sign = 1 if evaluation.best.mode == "max" else -1
    least = evaluation.min_delta or 0.0
    found, reference = BestRound(evaluation.best.metric), None
    for line in history:
        if "metrics" not in line:
            continue
        value: float | None = line["metrics"].get(found.metric)
        improved = value is not None and (reference is None or sign * (value - reference) > least)
        reference = value if improved else reference
        is_best = value is not None and (found.value is None or sign * (value - found.value) > 0)
        number, best = (line["round"], value) if is_best else (found.round, found.value)
        found = BestRound(found.metric, number, best, 0 if improved else found.waited + 1)
    return found


def stops_early(evaluation: EvaluationSpec, history: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the job ends with the last round of the history, however many were to follow."""
    best = best_round(evaluation, history)
    return best is not None and evaluation.patience is not None and best.waited >= evaluation.patience


def with_best(state: State, round: int, snapshot: Snapshot) -> State:
    """The state with this round's model as the best."""
    value = {"round": round, "settings": dict(snapshot.settings)}
    return state.with_trees(**{BEST: snapshot.tree}).with_values(**{BEST: value})


def best_snapshot(state: State) -> Snapshot | None:
    """Snapshot of the best model so far; None where there is none."""
    if BEST not in state.trees:
        return None
    return Snapshot(state.tree(BEST), state.values[BEST]["settings"])
