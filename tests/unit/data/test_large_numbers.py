"""Numbers that are large beside their spread keep their differences where the job standardises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.arrays import Arrays
from fedsilo.data.features import FeatureRules
from fedsilo.data.loaders import load

EPOCH_SECONDS = 1.7e9 + np.arange(40) % 7 * 0.25
SMALL_NUMBERS = np.round(np.random.default_rng(0).normal(50, 10, 40), 3)
LABELS = np.arange(40) % 2
STANDARDISING = {"preprocessing": {"standardise": True}}


def load_columns(
    directory: Path,
    loader: str,
    columns: list[np.ndarray],
    exact: bool = False,
    data: dict[str, Any] | None = None,
) -> Arrays:
    table = np.stack(columns, axis=1)
    config: dict[str, object] = {"path": f"data.{loader}"}
    if loader == "csv":
        rows = [
            ",".join(map(repr, [*row, int(label)])) for row, label in zip(table.tolist(), LABELS, strict=True)
        ]
        names = ",".join(f"c{place}" for place in range(len(columns)))
        (directory / "data.csv").write_text("\n".join([f"{names},y", *rows]))
        config["target"] = "y"
    elif loader == "npz":
        np.savez(directory / "data.npz", images=table, labels=LABELS)
    else:
        np.save(directory / "x.npy", table)
        np.save(directory / "y.npy", LABELS)
        config = {"features": "x.npy", "labels": "y.npy", "inMemory": False}
    dataset = DatasetSpec.model_validate({"name": "data", "loader": loader, "config": config})
    spec = DataSpec.model_validate(
        {"dataset": "data", "classes": 2, "inputShape": [len(columns)], **(data or {})}
    )
    return load(dataset, spec, root=directory, exact=exact)


@pytest.mark.parametrize("loader", ["csv", "npz", "npy"])
def test_differences_of_large_numbers_are_kept_where_the_job_standardises(
    tmp_path: Path, loader: str
) -> None:
    found = load_columns(tmp_path, loader, [EPOCH_SECONDS, SMALL_NUMBERS], data=STANDARDISING)
    assert found.features.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(found.features)[:, 0], EPOCH_SECONDS)
    np.testing.assert_array_equal(found.take(np.array([5, 3])).features[:], found.features[:][[5, 3]])


def test_a_table_of_large_numbers_is_the_same_in_a_temporary_file(tmp_path: Path) -> None:
    in_memory = load_columns(tmp_path, "csv", [EPOCH_SECONDS, SMALL_NUMBERS], data=STANDARDISING)
    dataset = DatasetSpec.model_validate(
        {"name": "data", "loader": "csv", "config": {"path": "data.csv", "target": "y", "inMemory": False}}
    )
    spec = DataSpec.model_validate({"dataset": "data", "classes": 2, "inputShape": [2], **STANDARDISING})
    stored = load(dataset, spec, root=tmp_path)
    assert stored.features.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(stored.features), in_memory.features)


@pytest.mark.parametrize("loader", ["csv", "npz", "npy"])
def test_ordinary_numbers_stay_in_float32(tmp_path: Path, loader: str) -> None:
    assert (
        load_columns(tmp_path, loader, [SMALL_NUMBERS, SMALL_NUMBERS], data=STANDARDISING).features.dtype
        == np.float32
    )
    assert load_columns(tmp_path, loader, [EPOCH_SECONDS, SMALL_NUMBERS]).features.dtype == np.float32


@pytest.mark.parametrize("loader", ["csv", "npz", "npy"])
def test_statistics_count_every_number_as_it_is_written(tmp_path: Path, loader: str) -> None:
    found = load_columns(tmp_path, loader, [SMALL_NUMBERS], exact=True)
    np.testing.assert_array_equal(np.asarray(found.features)[:, 0], SMALL_NUMBERS)
    halves = np.arange(40) / 2
    assert load_columns(tmp_path, loader, [halves], exact=True).features.dtype == np.float32, (
        "which loses nothing"
    )


def test_missing_and_infinite_numbers_decide_nothing() -> None:
    rules = FeatureRules(missing=True, rounding=1e-5)
    with_gaps = EPOCH_SECONDS[:, np.newaxis].copy()
    with_gaps[::3] = np.nan
    assert rules.keep_double(with_gaps)
    assert not rules.keep_double(np.full((4, 1), np.nan))
    assert not rules.keep_double(np.array([[np.inf], [1.0], [-np.inf]]))
