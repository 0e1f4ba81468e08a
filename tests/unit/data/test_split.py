from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.data.split import split_validation

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array)


@given(labels=LABELS, fraction=st.floats(0, 0.99), seed=st.integers(0, 2**32 - 1))
def test_every_sample_once_and_every_class_trained(labels: np.ndarray, fraction: float, seed: int) -> None:
    train, validation = split_validation(labels, fraction, seed)
    assert sorted([*train, *validation]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels)
    for label in np.unique(labels):
        owned = (labels == label).sum()
        assert (labels[validation] == label).sum() == min(int(fraction * owned + 0.5), owned - 1)


def test_the_seed_alone_decides() -> None:
    labels = np.arange(200) % 4
    np.random.seed(1)
    first = split_validation(labels, 0.25, seed=5)
    np.random.seed(2)
    again, other = split_validation(labels, 0.25, seed=5), split_validation(labels, 0.25, seed=6)
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])


def test_fraction_zero_keeps_everything_for_training() -> None:
    train, validation = split_validation(np.array([1, 0, 1]), 0.0, seed=0)
    assert train.tolist() == [0, 1, 2]
    assert validation.shape == (0,)
