"""Grouping silos by label distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.methods.fedconcat.clustering import cap_sizes, cluster, elbow, renumber
from tests import reference_numbers


def test_capped_clustering_is_that_of_the_released_code() -> None:
    recorded = reference_numbers.load("fedconcat_pieces")
    found = cap_sizes(recorded["X"], recorded["start_centroids"], int(recorded["max_size"]))
    assert found.tolist() == recorded["assign"].tolist()


@pytest.mark.parametrize("name", ["fedconcat_e2e", "fedconcat_id_e2e"])
def test_clusters_of_label_distributions_are_those_of_the_released_code(name: str) -> None:
    recorded = reference_numbers.load(name)
    rows = recorded["inferred_distribution" if "id" in name else "label_distribution"]
    assert cluster(rows, 2, seed=0).tolist() == renumber(recorded["assign"]).tolist()


distributions = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=n, max_size=n).map(
        np.array
    )
)


@settings(max_examples=40)
@given(rows=distributions, clusters=st.integers(1, 6), seed=st.integers(0, 2**63 - 1))
def test_no_cluster_is_empty_and_numbers_follow_first_appearance(
    rows: np.ndarray, clusters: int, seed: int
) -> None:
    found = cluster(rows, clusters, seed)
    assert sorted(set(found.tolist())) == list(range(found.max() + 1))
    assert found.max() + 1 <= min(clusters, len(rows))
    assert renumber(found).tolist() == found.tolist()
    assert cluster(rows, clusters, seed).tolist() == found.tolist()


@settings(max_examples=40)
@given(rows=distributions, clusters=st.integers(1, 4), seed=st.integers(0, 100))
def test_no_cluster_is_larger_than_its_cap(rows: np.ndarray, clusters: int, seed: int) -> None:
    cap = -(-len(rows) // clusters)
    found = cluster(rows, clusters, seed, cap)
    formed = min(clusters, len(np.unique(rows, axis=0)))
    assert np.bincount(found).max() <= max(cap, -(-len(rows) // formed))


def test_identical_rows_are_one_cluster() -> None:
    assert cluster(np.full((5, 4), 0.25), 3, seed=1).tolist() == [0, 0, 0, 0, 0]


def test_elbow_finds_the_groups_that_are_there() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.eye(4)[group] + rng.normal(0, 0.01, (5, 4)) for group in range(3)])
    assert elbow(rows, 8, seed=0) == 3


@pytest.mark.parametrize("rows", [np.full((4, 3), 1 / 3), np.ones((1, 3))])
def test_elbow_of_rows_without_spread_is_one_cluster(rows: np.ndarray) -> None:
    assert elbow(rows, 5, seed=0) == 1
