"""Statistics of a table's features: however a table is divided, merging gives those of the whole."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from fedsilo.data.statistics import FeatureStatistics, histogram, merge_statistics

ROWS, FEATURES = 60, 6


def table(seed: int) -> np.ndarray:
    """Features of different size, far from zero, constant, mostly missing, and missing altogether."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(ROWS, FEATURES)) * [1, 1e-3, 1e6, 1, 1, 1] + [0, 1e3, -1e7, 0, 5, 0]
    values[:, 3] = 0.1
    values[rng.random((ROWS, FEATURES)) < 0.2] = np.nan
    values[3:, 4] = np.nan
    values[:, 5] = np.nan
    return values


@st.composite
def parts(draw: st.DrawFn) -> tuple[np.ndarray, list[np.ndarray]]:
    """A table and its rows divided into any number of parts, some of them empty."""
    values = table(draw(st.integers(0, 2**32 - 1)))
    owners = np.array(draw(st.lists(st.integers(0, 6), min_size=ROWS, max_size=ROWS)))
    return values, [values[owners == owner] for owner in range(7)]


def exact_moments(values: np.ndarray) -> tuple[int, float, float]:
    """Count, mean and sum of squared deviations of one feature, in rational numbers."""
    there = [Fraction(float(value)) for value in values if not np.isnan(value)]
    mean = sum(there, Fraction(0)) / max(len(there), 1)
    return len(there), float(mean), float(sum(((value - mean) ** 2 for value in there), Fraction(0)))


@settings(max_examples=60, deadline=None)
@given(parts())
def test_merged_statistics_are_those_of_the_whole_table(given: tuple[np.ndarray, list[np.ndarray]]) -> None:
    whole, divided = given
    found = merge_statistics((FeatureStatistics.of(part) for part in divided), FEATURES)
    for feature in range(FEATURES):
        count, mean, m2 = exact_moments(whole[:, feature])
        assert (found.count[feature], found.missing[feature]) == (count, ROWS - count)
        assert found.mean[feature] == pytest.approx(mean, rel=1e-14, abs=1e-14)
        assert found.m2[feature] == pytest.approx(m2, rel=1e-10, abs=1e-20)
    assert found.m2[3] == 0, "a constant feature has no spread, to the last bit"
    assert found.mean[3] == 0.1
    assert list(found.scale[3:6:2]) == [1, 1]


@settings(max_examples=30, deadline=None)
@given(parts())
def test_standardising_by_merged_statistics_equals_a_pooled_scaler_to_1e_9(
    given: tuple[np.ndarray, list[np.ndarray]],
) -> None:
    whole, divided = given
    found = merge_statistics((FeatureStatistics.of(part) for part in divided), FEATURES)
    known = whole[:, :5]
    with np.errstate(invalid="ignore"):  # scikit-learn divides 0 by 0 for a column without a single value
        expected = StandardScaler().fit(known).transform(known)
    standardised = (known - found.mean[:5]) / found.scale[:5]
    np.testing.assert_allclose(standardised, expected, rtol=0, atol=1e-9)


def test_the_order_of_parts_changes_rounding_only() -> None:
    values = table(7)
    one, other = (FeatureStatistics.of(part) for part in (values[:10], values[10:]))
    forth, back = one.merge(other), other.merge(one)
    np.testing.assert_array_equal(forth.count, back.count)
    np.testing.assert_allclose(forth.mean, back.mean, rtol=1e-15)
    np.testing.assert_allclose(forth.m2, back.m2, rtol=1e-12)


def test_channels_of_images_are_features() -> None:
    images = np.random.default_rng(0).normal(size=(8, 3, 4, 5)).astype(np.float32)
    found = FeatureStatistics.of(images)
    flat = np.moveaxis(images.astype(np.float64), 1, 0).reshape(3, -1)
    assert list(found.count) == [160] * 3
    np.testing.assert_allclose(found.mean, flat.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.variance, flat.var(axis=1), rtol=1e-12)


def test_no_rows_are_no_values() -> None:
    found = FeatureStatistics.of(np.zeros((0, 2), np.float32))
    assert [list(array) for array in (found.count, found.missing, found.mean, found.m2)] == [[0, 0]] * 4


def test_a_histogram_counts_below_between_and_above_its_edges() -> None:
    values = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan, 9.0])
    assert list(histogram(values, [0, 1, 2])) == [1, 2, 1, 2]
