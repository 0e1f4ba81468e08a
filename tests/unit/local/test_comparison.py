"""Rows by column name of what a run compares."""

from __future__ import annotations

from typing import Any

from fedsilo.local.comparison import alone_rows, job_rows
from fedsilo.local.csv_rows import csv_bytes
from fedsilo.local.progress import RunOutcome

OUTCOME: dict[str, Any] = {
    "job": "default/two",
    "method": "fedavg",
    "rounds": 3,
    "samples": 84,
    "seconds": 2.5,
    "metrics": {"accuracy": 0.75, "f1": 0.5},
    "score": "f1=0.5",
    "silos": [{"name": "north", "samples": 84}, {"name": "south", "samples": None}],
}
BASELINE: dict[str, Any] = {
    "alone": [
        {"accuracy": 0.5, "f1": 0.25, "name": "north", "samples": 84, "classes": [40, 44]},
        {"accuracy": 0.5, "name": "south", "samples": 140, "classes": [140, 0]},
    ],
    "pooled": {"accuracy": 0.875, "f1": 0.625, "samples": 224},
}


def test_silos_alone_pooled_and_federated_are_one_table_with_the_main_metric_first() -> None:
    assert csv_bytes(list(alone_rows(OUTCOME, BASELINE))).decode().splitlines() == [
        "trained on,samples,f1,accuracy",
        "north alone,84,0.25,0.5",
        "south alone,140,,0.5",
        '"all, pooled",224,0.625,0.875',
        '"all, federated",84,0.5,0.75',
    ], "a silo that the federation lost has trained the other models all the same"


def test_jobs_are_one_table_whatever_metrics_each_has() -> None:
    other = {**OUTCOME, "job": "default/other", "metrics": {"mae": 2.0}}
    rows = job_rows([RunOutcome(OUTCOME, 0, 1000.0, ()), RunOutcome(other, 0, 10.0, ())])
    assert csv_bytes(list(rows)).decode().splitlines() == [
        "job,method,rounds,samples,seconds,bytes,f1,accuracy,mae",
        "default/two,fedavg,3,84,2.5,1000.0,0.5,0.75,",
        "default/other,fedavg,3,84,2.5,10.0,,,2.0",
    ]
