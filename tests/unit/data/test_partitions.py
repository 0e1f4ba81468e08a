"""What holds for every partition, whatever the labels; and the refusals."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.data.catalogue import MapPartitionConfig
from fedsilo.data.partitions import by_map, partition
from fedsilo.errors import DataInvalid, ManifestInvalid
from tests.unit.data.counts import count_matrix
from tests.unit.data.specs import part

BALANCED_LABELS = np.repeat(np.arange(10), 60)

ALL_PARTITIONS: list[tuple[str, dict[str, Any]]] = [
    ("iid", {}),
    ("labels", {"labelsPerSilo": 3}),
    ("dirichlet", {"beta": 0.5, "minSamples": 1}),
    ("creff", {"imbalance": 5}),
    ("creff", {"longTail": False, "dirichlet": False}),
    ("creff", {"recut": False}),
    ("map", {}),
    ("map", {"variant": "shard"}),
    ("map", {"variant": "dirichlet"}),
    ("map", {"variant": "real"}),
    ("fedbr", {}),
    ("fedbr", {"totalConcentration": 10.0, "prior": "uniform"}),
]


@st.composite
def labels_and_silos(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    sizes = [draw(st.integers(12, 40)), *draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.RandomState(0).permutation(labels), draw(st.integers(1, 12))


@pytest.mark.parametrize(("scheme", "config"), ALL_PARTITIONS)
@settings(max_examples=15)
@given(case=labels_and_silos(), seed=st.integers(0, 2**32 - 1))
def test_parts_are_disjoint_and_within(
    scheme: str, config: dict[str, Any], case: tuple[np.ndarray, int], seed: int
) -> None:
    labels, silos = case
    try:
        parts = partition(labels, part(scheme, silos, seed, **config))
    except DataInvalid:
        return  # refused in words, which test_labels_that_cannot_be_divided reads
    assert len(parts) == silos
    everything = np.concatenate(parts)
    assert everything.dtype == np.int64
    assert len(np.unique(everything)) == len(everything)
    assert np.isin(everything, np.arange(len(labels))).all()
    if scheme in ("iid", "labels", "dirichlet"):
        assert len(everything) == len(labels)
    if scheme == "fedbr":
        assert {len(p) for p in parts} == {len(labels) // silos}
    if scheme == "creff" and config.get("recut", True):
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("scheme", "config"), ALL_PARTITIONS)
def test_the_seed_alone_decides(scheme: str, config: dict[str, Any]) -> None:
    first = partition(BALANCED_LABELS, part(scheme, 10, seed=3, **config))
    np.random.seed(99)
    random.seed(99)
    torch.manual_seed(99)
    before = global_streams()
    again = partition(BALANCED_LABELS, part(scheme, 10, seed=3, **config))
    other = partition(BALANCED_LABELS, part(scheme, 10, seed=4, **config))
    assert global_streams() == before
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


def global_streams() -> tuple[bytes, object, bytes]:
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    return numpy_state["state"]["key"].tobytes(), random.getstate(), torch.get_rng_state().numpy().tobytes()


def test_labels_gives_every_silo_its_number_of_classes() -> None:
    for count in (1, 2, 10):
        counts = count_matrix(
            BALANCED_LABELS, partition(BALANCED_LABELS, part("labels", 10, labelsPerSilo=count)), 10
        )
        assert ((counts > 0).sum(axis=1) == count).all()
        for column in counts.T:
            assert np.ptp(column[column > 0]) <= 1


def test_dirichlet_keeps_its_minimum_and_skews_more_with_smaller_beta() -> None:
    skews = []
    for beta in (0.05, 100.0):
        counts = count_matrix(
            BALANCED_LABELS, partition(BALANCED_LABELS, part("dirichlet", 5, beta=beta)), 10
        )
        assert counts.sum(axis=1).min() >= 10
        skews.append(counts.std(axis=0).mean())
    assert skews[0] > 3 * skews[1]


def test_creff_long_tail_alone() -> None:
    parts = partition(BALANCED_LABELS, part("creff", 4, imbalance=10, dirichlet=False))
    counts = count_matrix(BALANCED_LABELS, parts, 10).sum(axis=0)
    assert counts[0] == 60
    assert counts[9] == 6
    assert (np.diff(counts) <= 0).all()


def test_map_with_its_test_parts_hands_out_almost_everything() -> None:
    pairs = by_map(BALANCED_LABELS, 6, 0, MapPartitionConfig())
    handed_out = np.concatenate([ids for pair in pairs for ids in pair])
    assert len(np.unique(handed_out)) == len(handed_out)
    assert (
        len(handed_out) >= len(BALANCED_LABELS) - 10 * 3
    )  # rounding loses less than half a sample per silo and class
    for train, test in pairs:
        assert len(test) == int(0.2 * (len(train) + len(test)))


def test_map_without_quantity_skew_shares_a_class_by_the_table() -> None:
    pairs = by_map(
        BALANCED_LABELS, 5, 0, MapPartitionConfig(variant="shard", quantitySigma=0.0, labelsPerSilo=4)
    )
    counts = count_matrix(BALANCED_LABELS, [np.concatenate(pair) for pair in pairs], 10)
    assert counts[counts > 0].tolist() == [30] * 20


def test_map_leaves_small_silos_empty() -> None:
    parts = partition(BALANCED_LABELS, part("map", 6, minSamples=100))
    whole = partition(BALANCED_LABELS, part("map", 6))
    small = [k for k, p in enumerate(whole) if len(p) < 78]
    assert small
    assert all(len(parts[k]) == 0 for k in small)


def test_fedbr_silos_are_almost_pure() -> None:
    counts = count_matrix(BALANCED_LABELS, partition(BALANCED_LABELS, part("fedbr", 10)), 10)
    assert np.median(counts.max(axis=1) / counts.sum(axis=1)) > 0.9


@pytest.mark.parametrize(
    ("scheme", "silos", "config", "message"),
    [
        ("iid", 601, {}, "silos: 601 is more than the 600 samples; use fewer silos"),
        (
            "labels",
            4,
            {"labelsPerSilo": 11},
            "config.labelsPerSilo: 11 is more than the 10 classes; use at most 10",
        ),
        (
            "labels",
            3,
            {"labelsPerSilo": 1},
            "class 3 .60 samples. falls to none of 3 silos; raise config.labels",
        ),
        ("dirichlet", 100, {"beta": 0.5}, "each of 100 silos has 10 with beta 0.5; use fewer silos"),
        ("map", 2, {"variant": "shard"}, "class 4 .60 samples. falls to none of 2 silos; use more silos"),
    ],
)
def test_labels_that_cannot_be_divided(scheme: str, silos: int, config: dict[str, Any], message: str) -> None:
    with pytest.raises(DataInvalid, match=message):
        partition(BALANCED_LABELS, part(scheme, silos, **config))


def test_dirichlet_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsilo.data.partitions.niid.MAX_DRAWS", 5)
    with pytest.raises(DataInvalid, match=r"a smaller minSamples or a larger beta"):
        partition(BALANCED_LABELS, part("dirichlet", 20, beta=1e-3, minSamples=30))


def test_a_wrong_configuration_is_the_manifests_fault() -> None:
    with pytest.raises(ManifestInvalid, match=r"partition 'dirichlet': config.beta: is missing; add it"):
        partition(BALANCED_LABELS, part("dirichlet", 2))
