"""The score that stands for a job in tables, and how it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.figures import MAIN_METRICS, SMALLER_IS_BETTER, main_score, score_text
from fedsilo.learning.metrics.catalogue import METRICS
from fedsilo.tasks.registry import TASKS


@pytest.mark.parametrize(
    ("status", "main"),
    [
        ({"metrics": {"loss": 0.4, "accuracy": 0.9}}, ("accuracy", 0.9)),
        ({"metrics": {"loss": 0.4, "mae": 3.0, "rmse": 4.0}}, ("mae", 3.0)),
        ({"metrics": {"loss": 0.4}}, ("loss", 0.4)),
        ({"metrics": {"accuracy": 0.9, "dice": 0.5}, "score": "dice=0.62"}, ("dice", 0.5)),
        ({"metrics": {"accuracy": 0.9}, "score": "auroc_mean=0.7"}, ("accuracy", 0.9)),
        ({"metrics": {"own": 2.0}}, ("own", 2.0)),
        ({"metrics": {}}, None),
        ({}, None),
    ],
)
def test_the_score_of_a_job(status: dict[str, Any], main: tuple[str, float] | None) -> None:
    assert main_score(status) == main


def test_every_learning_task_has_a_main_metric() -> None:
    for task in TASKS.values():
        assert task.metrics[0] in MAIN_METRICS


def test_shares_are_shown_in_per_cent_and_errors_are_better_small() -> None:
    for name, entry in METRICS.items():
        if name == "confusion_matrix":
            continue
        assert (score_text(name, 0.5) == "50.0%") == entry.unit_range, name
    errors = {name for name, entry in METRICS.items() if not entry.unit_range} - {"r2"}
    assert errors | {"calibration_error"} == SMALLER_IS_BETTER
    assert (score_text("auroc_mean", 0.875), score_text("rmse", 12.3456), score_text("r2", -2.0)) == (
        "87.5%",
        "12.35",
        "-2",
    )
