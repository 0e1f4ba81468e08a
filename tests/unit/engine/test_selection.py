"""The best round, and when a job ends early: from the scores alone."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.engine.record import class_figures
from fedsilo.transforms.best_model.selection import BestRound, best_round, stops_early


def evaluation_spec(mode: str = "max", **fields: Any) -> EvaluationSpec:
    return EvaluationSpec.model_validate({"best": {"metric": "score", "mode": mode}, **fields})


def rounds(*values: float | None) -> list[dict[str, Any]]:
    """A history of a job, with a round that is not evaluated for None."""
    return [
        {"round": number, **({} if value is None else {"metrics": {"score": value}})}
        for number, value in enumerate(values, start=1)
    ]


@pytest.mark.parametrize(
    ("mode", "values", "round", "value", "waited"),
    [
        ("max", (0.2, 0.5, 0.4, 0.3), 2, 0.5, 2),
        ("min", (0.2, 0.5, 0.1, 0.3), 3, 0.1, 1),
        ("max", (0.5, 0.5), 1, 0.5, 1),
        ("max", (None, 0.5, None, 0.4), 2, 0.5, 1),
        ("max", (-2.0, -1.0), 2, -1.0, 0),
    ],
)
def test_the_best_round(
    mode: str, values: tuple[float | None, ...], round: int, value: float, waited: int
) -> None:
    assert best_round(evaluation_spec(mode), rounds(*values)) == BestRound("score", round, value, waited)


def test_small_steps_make_a_better_model_and_no_improvement() -> None:
    evaluation, history = evaluation_spec(patience=3, minDelta=0.1), rounds(0.5, 0.54, 0.58, 0.6)
    assert best_round(evaluation, history) == BestRound("score", 4, 0.6, 3)
    assert stops_early(evaluation, history)
    assert not stops_early(evaluation, [*history[:3], *rounds(0.7)])


def test_patience_counts_evaluations_and_not_rounds() -> None:
    evaluation = evaluation_spec(patience=2)
    assert not stops_early(evaluation, rounds(0.5, None, 0.4, None))
    assert stops_early(evaluation, rounds(0.5, None, 0.4, None, 0.3))


def test_an_evaluation_without_the_metric_is_no_improvement() -> None:
    history = [{"round": 1, "metrics": {"loss": 2.0}}, {"round": 2, "metrics": {}}]
    assert best_round(evaluation_spec(), history) == BestRound("score", None, None, 2)


def test_figures_by_class_go_into_the_status_unless_there_are_too_many() -> None:
    record: dict[str, Any] = {"perClass": {"recall": [0.5, None]}, "confusion": [[1, 1], [0, 0]]}
    assert [found.model_dump() for found in class_figures(record)] == [
        {"name": None, "figures": {"recall": 0.5}, "answers": (1, 1)},
        {"name": None, "figures": {}, "answers": (0, 0)},
    ]
    assert class_figures({"metrics": {"accuracy": 0.5}}) == ()
    assert class_figures({"perClass": {"recall": [0.5] * 51}}) == ()


def test_without_a_question_there_is_no_answer() -> None:
    assert best_round(EvaluationSpec(), rounds(0.5)) is None
    assert not stops_early(EvaluationSpec(), rounds(0.5))
