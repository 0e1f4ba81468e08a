"""What a sweep's plot says in words: its title, its axes, its legend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedsilo.api.loading import JobManifest
from fedsilo.local.sweep.grid import GridPoint
from fedsilo.local.sweep.plot_text import labels, plot_title, spoken_metric
from fedsilo.local.sweep.runs import GridRun

RATE, SIZE = "spec.training.optimizer.learningRate", "spec.training.batchSize"


def grid_run(values: dict[str, Any], seed: int = 1, partition_seed: int | None = None) -> GridRun:
    job = SimpleNamespace(metadata=SimpleNamespace(name="digits"))
    point = GridPoint(values, seed, cast(JobManifest, SimpleNamespace(job=job)), partition_seed)
    return GridRun(point, {}, [])


@pytest.mark.parametrize(
    ("field", "values", "spoken"),
    [
        (RATE, [0.01, 0.1], ["learning rate 0.01", "learning rate 0.1"]),
        ("spec.method.name", ["fedavg", "fedprox"], ["fedavg", "fedprox"]),
        (
            "spec.method",
            [{"name": "fedavg"}, {"name": "fedprox", "config": {"mu": 0.1}}],
            ["fedavg", "fedprox (mu 0.1)"],
        ),
        ("spec.training.gradientClip", [None, 2], ["no gradient clip", "gradient clip 2"]),
        ("spec.model.config.batchNorm", [True, False], ["batch norm", "no batch norm"]),
        ("spec.model.config.hidden", [[16], [16, 8]], ["hidden [16]", "hidden [16, 8]"]),
        ("spec.privacy", [{"minSamplesPerClass": 5}, {}], ["min samples per class 5", "no privacy"]),
    ],
)
def test_a_line_is_called_by_what_sets_it_apart(field: str, values: list[Any], spoken: list[str]) -> None:
    assert labels([[grid_run({field: value, SIZE: 32})] for value in values]) == spoken


def test_fields_that_differ_together_are_both_named() -> None:
    groups = [[grid_run({RATE: rate, SIZE: size})] for rate, size in ((0.1, 16), (0.2, 32))]
    assert labels(groups) == ["learning rate 0.1, batch size 16", "learning rate 0.2, batch size 32"]


def test_the_title_names_the_job_and_the_seeds_of_a_mean() -> None:
    assert plot_title([grid_run({RATE: 0.1}, seed) for seed in (1, 2, 3)]) == (
        "digits: mean and standard deviation over 3 seeds"
    )
    assert plot_title([grid_run({RATE: 0.1}), grid_run({RATE: 0.2})]) == "digits"


@pytest.mark.parametrize(
    ("seeds", "partition_seeds", "over"),
    [([1], [0, 1], "2 partitions"), ([1, 2], [0, 1, 2], "2 seeds of 3 partitions")],
)
def test_the_title_names_the_partitions_of_a_mean(
    seeds: list[int], partition_seeds: list[int], over: str
) -> None:
    runs = [grid_run({RATE: 0.1}, seed, part) for seed in seeds for part in partition_seeds]
    assert plot_title(runs) == f"digits: mean and standard deviation over {over}"


def test_axes_are_words() -> None:
    assert [spoken_metric(name) for name in ("balanced_accuracy", "mae", "auroc", "loss")] == [
        "balanced accuracy",
        "mean absolute error",
        "AUROC",
        "loss",
    ]
