"""What people read of completed rounds: curves of a bounded length, and whose update has which digest."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.status import CurvePoint
from fedsilo.engine.record import MAX_POINTS, curve, log_line, receipts, with_metrics


def history(rounds: int, every: int = 1) -> list[dict[str, Any]]:
    """Rounds whose loss is their number; every n-th and the last is scored with its number."""
    scored = {number for number in range(1, rounds + 1) if number % every == 0 or number == rounds}
    return [
        {"round": number, "training": {"loss": float(number)}}
        | ({"metrics": {"accuracy": float(number)}} if number in scored else {})
        for number in range(1, rounds + 1)
    ]


def test_a_short_history_is_its_curve() -> None:
    assert curve([]) == ()
    assert curve(history(2, every=2)) == (
        CurvePoint(round=1, metrics={}, training={"loss": 1.0}),
        CurvePoint(round=2, metrics={"accuracy": 2.0}, training={"loss": 2.0}),
    )


@given(st.integers(1, 2000), st.integers(1, 300))
def test_a_curve_is_bounded_ends_with_the_last_round_and_loses_no_span_without_a_score(
    rounds: int, every: int
) -> None:
    points = curve(history(rounds, every))
    numbers = [point.round for point in points]
    assert len(points) <= MAX_POINTS
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == rounds
    assert points[-1].metrics == {"accuracy": float(rounds)}
    for before, point in zip([0, *numbers], points, strict=False):
        assert point.training == {"loss": float(point.round)}
        inside = [number for number in range(before + 1, point.round + 1) if number % every == 0]
        last = point.round if point.round == rounds else inside[-1] if inside else None
        assert point.metrics == ({} if last is None else {"accuracy": float(last)})


@given(st.integers(1, 1000))
def test_a_point_stays_where_it_is_or_goes_while_rounds_are_added(rounds: int) -> None:
    before, after = curve(history(rounds)), curve(history(rounds + 1))
    assert all(point in before or point.round == rounds + 1 for point in after)


def test_receipts_name_the_silo_even_where_one_name_ends_in_another() -> None:
    line = {
        "round": 3,
        "phase": "fine-tune",
        "updates": {
            "r00003-fine-tune-north": "a",
            "r00003-fine-tune-far-north": "b",
            "r00003-evaluate-north": "c",
        },
    }
    assert receipts(line) == [
        ("north", "fine-tune", "a"),
        ("far-north", "fine-tune", "b"),
        ("north", "evaluate", "c"),
    ]


def test_a_round_as_a_log_line() -> None:
    line = {
        "round": 8,
        "phase": "train",
        "updates": {"r00008-train-north": "a", "r00008-train-east": "b", "r00008-evaluate-east": "c"},
        "bytes": {},
        "failed": {"south": "TrainerCrashed: exit code 137"},
        "missing": ["west"],
        "seconds": 12.34,
        "training": {},
        "metrics": {"accuracy": 0.71834, "loss": 1.25},
    }
    assert log_line(line, 50) == (
        "round 8 of 50 (train) is complete after 12.3 s: 2 silos answered, south failed, west was not waited for any "
        "more, accuracy 0.7183, loss 1.25"
    )
    assert "1 silo answered" in log_line(line | {"updates": {"r00008-train-north": "a"}}, 50)


def test_figures_that_json_cannot_state_are_left_out_of_the_record() -> None:
    inf, nan = float("inf"), float("nan")
    figures = {
        "samples": {"a/north": 3},
        "training": {"loss": nan, "steps": 4.0},
        "silos": {"a/north": {"loss": nan, "steps": 4.0}},
    }
    scores = {"metrics": {"accuracy": 0.5, "personal_accuracy_spread": inf}, "personal": {"a/north": -inf}}
    record = with_metrics({"round": 1, "metrics": {"loss": inf}}, figures, scores)
    assert record == {
        "round": 1,
        "samples": {"a/north": 3},
        "training": {"steps": 4.0},
        "silos": {"a/north": {"steps": 4.0}},
        "metrics": {"accuracy": 0.5},
        "personal": {},
    }


def test_a_curve_of_an_older_history_has_only_finite_figures() -> None:
    line = {
        "round": 1,
        "training": {"loss": float("nan")},
        "metrics": {"accuracy": 0.5, "loss": float("inf")},
    }
    assert curve([line]) == (CurvePoint(round=1, metrics={"accuracy": 0.5}, training={}),)
