"""Statistics of all silos together are those of the pooled table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.data import UNTRAINED_METHODS
from fedsilo.methods import registry
from fedsilo.methods.checks import check_validation
from fedsilo.methods.components.feature_statistics import (
    feature_statistics,
    large_parts,
    min_values_per_part,
)
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.method import Method
from fedsilo.methods.statistics import Statistics
from fedsilo.silo.context import open_context
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding

NAMES = ["north", "south", "west"]
EDGES = [-1.0, 0.0, 1.0]
THREE = {"privacy": {"minSamplesPerClass": 3}}
CONFIG = {"histograms": [{"feature": 1, "edges": EDGES}]}


def tables(sizes: tuple[int, ...] = (7, 30, 12)) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    offsets = np.array([0, 0, 1e4, -5, 0.1, 3])
    found = [(rng.normal(size=(size, 6)) + offsets).astype(np.float32) for size in sizes]
    for table in found:
        table[:, 5] = 0.1
    return found


def run(directory: Path, parts: list[np.ndarray], **sections: Any) -> tuple[dict[str, np.ndarray], Any]:
    spec = job_spec("statistics", NAMES[: len(parts)], method={"config": CONFIG}, **sections)
    silos = [
        silo_holding(directory, name, part, np.zeros(len(part), np.int64))
        for name, part in zip(NAMES, parts, strict=False)
    ]
    engine = federate(directory / "job", spec, runners(spec, silos, directory))
    description = json.loads((directory / "job" / "aggregator" / "model.json").read_text())
    return dict(model_of(engine)), (engine.history(), description)


def test_the_job_ends_in_the_statistics_of_the_pooled_table(tmp_path: Path) -> None:
    parts = tables()
    pooled = np.concatenate(parts).astype(np.float64)
    found, (history, description) = run(tmp_path, parts)
    assert list(found["count"]) == [49] * 6
    assert list(found["missing"]) == [0] * 6
    np.testing.assert_allclose(found["mean"], pooled.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["variance"], pooled.var(axis=0), rtol=1e-9, atol=1e-18)
    assert found["variance"][5] == 0
    column = pooled[:, 1]
    between = [np.sum(column < -1), *np.histogram(column, EDGES)[0], np.sum(column >= 1)]
    assert list(found["histogram/1"]) == between
    assert [line["phase"] for line in history] == ["statistics"]
    assert "metrics" not in history[0], "there is nothing to score"
    line = description["statistics"][1]
    assert (line["count"], line["histogram"]["counts"]) == (49, between)
    assert line["mean"] == found["mean"][1]


def test_features_and_parts_of_histograms_with_few_values_are_left_out(tmp_path: Path) -> None:
    parts = tables((7, 30))
    found, (_, description) = run(tmp_path, parts, privacy={"minSamplesPerClass": 8})
    assert list(found["count"]) == [30] * 6, "the silo with 7 examples says nothing of any feature"
    np.testing.assert_allclose(found["mean"], parts[1].astype(np.float64).mean(axis=0), rtol=1e-12)
    column = parts[1][:, 1]
    whole = [np.sum(column < -1), *np.histogram(column, EDGES)[0], np.sum(column >= 1)]
    assert list(found["histogram/1"]) == [count if count >= 8 else 0 for count in whole]
    (tmp_path / "none").mkdir()
    none, (_, description) = run(tmp_path / "none", parts, privacy={"minSamplesPerClass": 100})
    assert not any(array.any() for name, array in none.items() if name not in ("missing", "suppressed"))
    assert description["statistics"][0] == {"feature": 0, "count": 0, "missing": 0, "suppressed": 37}


def test_an_image_counts_once_however_many_pixels_it_has(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((6, 3, 4, 4)).astype(np.float32)
    silo = silo_holding(tmp_path, "north", images, np.zeros(6, np.int64))
    for minimum, count in ((6, 96), (7, 0)):
        spec = job_spec(
            "statistics", ["north"], data={"inputShape": [3, 4, 4]}, privacy={"minSamplesPerClass": minimum}
        )
        assert (
            list(feature_statistics(open_context(spec, silo, tmp_path), {}).tensors["count"]) == [count] * 3
        )


@pytest.mark.parametrize(
    ("histograms", "path", "problem"),
    [
        (
            [{"feature": 6, "edges": [0]}],
            "histograms[0].feature",
            "is no feature: spec.data.inputShape has 6",
        ),
        ([{"feature": 1, "edges": [0]}] * 2, "histograms[1].feature", "has two histograms"),
        (
            [{"feature": 1, "edges": [0, 2, 2]}],
            "histograms[0].edges[2]",
            "is not above the edge before it, 2",
        ),
    ],
)
def test_a_histogram_that_cannot_be_is_refused(
    histograms: list[dict[str, Any]], path: str, problem: str
) -> None:
    faults = bound_method("statistics", config={"histograms": histograms}).check()
    assert [(where, what) for where, _, what, _ in faults] == [(f"spec.method.config.{path}", problem)]


def test_what_is_in_no_part_of_a_histogram_is_said_with_remedies(tmp_path: Path) -> None:
    parts = tables((30, 30))
    for part in parts:
        part[:, 1] = np.where(np.arange(30) < 2, 2.0, -0.5)
        part[2:4, 1] = 0.5
    found, (_, description) = run(tmp_path, parts, **THREE)
    assert found["histogram/1"].tolist() == [0, 52, 0, 0]
    assert description["statistics"][1]["histogram"]["suppressed"] == 8
    (remark,) = description["remarks"]
    assert "feature 1: 8 of 60 values are in no part of the histogram" in remark
    assert "fewer edges" in remark
    assert "spec.aggregation.secure" in remark
    assert remark in (tmp_path / "job" / "aggregator" / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([9, 2, 7, 8], [9, 0, 0, 8]),  # else 26 less 24 would be the one part
        ([9, 2, 3, 8], [9, 0, 0, 8]),  # 5 of two parts, neither of which is known
        ([9, 0, 7, 8], [9, 0, 7, 8]),
        ([2, 58, 0, 0], [0, 0, 0, 0]),
        ([1, 1, 1, 1], [0, 0, 0, 0]),
        ([5, 5, 4, 0], [0, 5, 0, 0]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_what_is_left_out_of_a_histogram_does_not_follow_from_the_rest(
    counts: list[int], shown: list[int]
) -> None:
    assert large_parts(np.array(counts), 5).tolist() == shown


def test_how_many_values_a_feature_has_does_not_follow_from_those_that_it_lacks(tmp_path: Path) -> None:
    table = tables((9,))[0]
    table[2:, 0] = np.nan  # 2 values are there
    table[:, 2] = np.nan
    table[0, 3] = np.nan
    silo = silo_holding(tmp_path, "north", table, np.zeros(9, np.int64))
    few = {"minSamplesPerClass": 3}
    spec = job_spec("statistics", ["north"], data={"preprocessing": {"impute": "mean"}}, privacy=few)
    found = feature_statistics(open_context(spec, silo, tmp_path), {}).tensors
    assert found["count"].tolist() == [0, 9, 0, 8, 9, 9]
    assert found["missing"].tolist() == [0, 0, 9, 1, 0, 0], "none of 9 values is no secret of a few"


def test_what_is_in_no_figure_of_a_feature_is_said(tmp_path: Path) -> None:
    parts = tables((30, 2))
    found, (_, description) = run(tmp_path, parts, **THREE)
    assert list(found["count"]) == [30] * 6
    assert list(found["suppressed"]) == [2] * 6
    assert "feature 0: 2 values are in no figure" in description["remarks"][0]


def test_the_result_says_nothing_where_nothing_is_left_out(tmp_path: Path) -> None:
    _, (_, description) = run(tmp_path, tables((60, 60)), privacy={"minSamplesPerClass": 1})
    assert "remarks" not in description


def test_of_sums_the_total_of_a_part_must_reach_the_minimum(tmp_path: Path) -> None:
    parts = tables((30, 30, 30))
    for part in parts:
        part[:, 1] = np.where(np.arange(30) < 2, 2.0, -0.5)
    (tmp_path / "enough").mkdir()
    found, (_, description) = run(tmp_path / "enough", parts, aggregation={"secure": True}, **THREE)
    assert list(found["histogram/1"]) == [0, 84, 0, 6], "2 values of each silo are enough together"
    assert "remarks" not in description
    parts[0][2:4, 1] = 0.5
    (tmp_path / "few").mkdir()
    found, (_, description) = run(tmp_path / "few", parts, aggregation={"secure": True}, **THREE)
    assert list(found["histogram/1"]) == [0, 82, 0, 0], "2 of all silos are too few, and follow from no 6"
    assert description["statistics"][1]["histogram"]["suppressed"] == 8
    assert "secure" not in description["remarks"][0]


def test_a_silo_that_asks_for_more_than_the_job_leaves_small_parts_out_of_sums() -> None:
    spec = job_spec("statistics", 3, aggregation={"secure": True}, privacy={"minSamplesPerClass": 5})
    assert (min_values_per_part(spec, 5), min_values_per_part(spec, 9)) == (1, 9)


def test_numbers_between_edges_are_counted_as_they_are_written(tmp_path: Path) -> None:
    rows = np.tile(np.array([[0.7], [0.3]]), (10, 6))
    config = {"histograms": [{"feature": 1, "edges": [0.3, 0.7]}]}
    spec = job_spec("statistics", NAMES[:1], method={"config": config})
    silos = [silo_holding(tmp_path, "north", rows, np.zeros(20, np.int64))]
    engine = federate(tmp_path / "job", spec, runners(spec, silos, tmp_path))
    assert list(model_of(engine)["histogram/1"]) == [0, 10, 10]
    assert model_of(engine)["mean"][0] == 0.5


def test_all_examples_count_unless_the_job_says_otherwise(tmp_path: Path) -> None:
    def examples(**data: object) -> int:
        spec = job_spec("statistics", 1, data={"validationFraction": None, **data})
        silo = silo_holding(tmp_path, "s0", np.zeros((40, 6), np.float32), np.zeros(40, np.int64))
        return len(open_context(spec, silo, tmp_path).train)

    assert examples() == examples(validationFraction=0) == 40
    assert examples(validationFraction=0.25) == 30


def test_the_methods_that_train_nothing_are_those_of_all_examples() -> None:
    untrained = {
        name
        for name in registry.names()
        if registry.package_of(name) is None and not bound_method(name).models.scored
    }
    assert untrained == set(UNTRAINED_METHODS)


class Counts(Statistics):
    """A method of another package that trains nothing."""

    name = "counts"


@pytest.mark.parametrize(
    ("method", "fraction", "faults"), [(Counts, 0, 0), (FedAvg, 0, 1), (FedAvg, 0.1, 0), (Counts, 0.1, 0)]
)
def test_only_a_method_with_something_to_score_needs_examples_for_that(
    method: type[Method], fraction: float, faults: int
) -> None:
    spec = job_spec("fedavg", 1, data={"validationFraction": fraction})
    assert len(check_validation(method(spec, method.Config()))) == faults
