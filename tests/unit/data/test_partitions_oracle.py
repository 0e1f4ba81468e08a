"""Partitions against what the authors' own programs produced, sample for sample."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from fedsilo.data.catalogue import MapPartitionConfig
from fedsilo.data.partitions import by_map, partition
from fedsilo.data.partitions.creff import long_tail_sizes
from tests import reference_numbers
from tests.unit.data.counts import count_matrix
from tests.unit.data.specs import part


def parts_of(numbers: dict[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    return np.split(numbers[f"{prefix}flat"], np.cumsum(numbers[f"{prefix}sizes"])[:-1])


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("key", "scheme", "config"),
    [
        ("label2", "labels", {"labelsPerSilo": 2}),
        ("label3", "labels", {"labelsPerSilo": 3}),
        ("labeldir_0.1", "dirichlet", {"beta": 0.1}),
        ("labeldir_0.5", "dirichlet", {"beta": 0.5}),
    ],
)
def test_fedconcat(key: str, scheme: str, config: dict[str, Any]) -> None:
    numbers = reference_numbers.load("partition_fedconcat")
    found = partition(numbers["y"], part(scheme, 20, **config))
    assert_same(found, parts_of(numbers, f"{key}/"))
    np.testing.assert_array_equal(count_matrix(numbers["y"], found, 10), numbers[f"{key}/counts"])


@pytest.mark.parametrize("variant", ["map", "shard", "dirichlet", "real"])
def test_map(variant: Literal["map", "shard", "dirichlet", "real"]) -> None:
    numbers = reference_numbers.load("partition_map")
    found = by_map(numbers["y"].astype(np.int64), 20, 0, MapPartitionConfig(variant=variant))
    assert_same([train for train, _ in found], parts_of(numbers, f"{variant}/train_"))
    assert_same([test for _, test in found], parts_of(numbers, f"{variant}/test_"))


def test_the_scheme_map_takes_the_training_parts() -> None:
    numbers = reference_numbers.load("partition_map")
    assert_same(partition(numbers["y"], part("map", 20)), parts_of(numbers, "map/train_"))


def test_fedbr() -> None:
    numbers = reference_numbers.load("partition_fedbr")
    found = partition(numbers["y"], part("fedbr", 10))
    assert_same(found, list(numbers["ids"]))
    np.testing.assert_array_equal(count_matrix(numbers["y"], found, 10), numbers["counts"])


@pytest.mark.parametrize(("samples", "classes"), [(50_000, 10), (50_000, 100)])
@pytest.mark.parametrize("imbalance", [10, 50, 100])
def test_creff_long_tail_sizes(samples: int, classes: int, imbalance: int) -> None:
    expected = reference_numbers.load("creff_partition")[f"cifar{classes}_if{imbalance}"]
    assert long_tail_sizes(samples, classes, imbalance) == expected.tolist()


def test_creff_skew_and_recut() -> None:
    numbers = reference_numbers.load("creff_partition")
    labels = np.repeat(np.arange(10), numbers["cifar10_if100"])
    found = partition(labels, part("creff", 20, seed=7, beta=0.5, longTail=False))
    assert_same(found, parts_of(numbers, "part_"))
