"""Statistics of all silos together are those of the pooled table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.methods.components.feature_statistics import feature_statistics
from fedsilo.silo.context import open_context
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding

NAMES = ["north", "south", "west"]
EDGES = [-1.0, 0.0, 1.0]
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
    assert not any(array.any() for name, array in none.items() if name != "missing")
    assert description["statistics"][0] == {"feature": 0, "count": 0, "missing": 0}


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
