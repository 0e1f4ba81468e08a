"""Statistics of features in a sum are those of all values together, whatever their size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.data.statistics import FeatureStatistics, merge_statistics
from fedsilo.errors import Problem
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.parts import SumResult
from fedsilo.wire import Contract, ExpectedBlock
from fedsilo.wire.combine import BlockSum, CountedMean, SquaredDeviations

NAMES = ("count", "missing", "mean", "m2")


def contract(features: int) -> Contract:
    return Contract(
        (
            ExpectedBlock("feature_statistics", "count", (features,), "int64", combine=BlockSum()),
            ExpectedBlock("feature_statistics", "missing", (features,), "int64", combine=BlockSum()),
            ExpectedBlock("feature_statistics", "mean", (features,), "float64", combine=CountedMean("count")),
            ExpectedBlock(
                "feature_statistics", "m2", (features,), "float64", combine=SquaredDeviations("mean")
            ),
        )
    )


def decoded_sum(parts: list[FeatureStatistics], silos: int) -> SumResult:
    layout = Layout(contract(len(parts[0].count)), silos, "samples")
    total = np.zeros(layout.size, np.uint64)
    for part in parts:
        tensors = {name: getattr(part, name) for name in NAMES}
        total += layout.encode(0, {}, tensors, tensors.__getitem__, {})
    return layout.decode(total, len(parts), {})


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8),
    st.sampled_from([8, 50, 256]),
    st.integers(0, 99),
)
def test_they_are_those_of_all_values(sizes: list[int], silos: int, seed: int) -> None:
    """Features range from 1e-4 to 1e6, centred and not, one of them constant and one with missing values."""
    rng = np.random.default_rng(seed)
    origin, scale = np.array([0.0, 1e6, 2000.0, -0.5, 0.1]), np.array([1e-4, 1.0, 5.0, 1e5, 0.0])
    tables = [origin + scale * rng.normal(0, 1, (size, 5)) for size in sizes]
    for table in tables:
        table[: len(table) // 2, 2] = np.nan
    parts = [FeatureStatistics.of(table) for table in tables]
    found, expected = decoded_sum(parts, silos).tensors, merge_statistics(parts, 5)
    np.testing.assert_array_equal(found["count"], expected.count)
    np.testing.assert_array_equal(found["missing"], expected.missing)
    np.testing.assert_allclose(found["mean"], expected.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["m2"], expected.m2, rtol=1e-6, atol=1e-11)
    assert found["m2"][4] == 0, "a constant feature has no spread at all"


def test_a_value_beyond_the_bound_is_refused() -> None:
    part = FeatureStatistics.of(np.array([[1e20], [2e20]]))
    with pytest.raises(
        Problem, match=r"tensor mean: sum 0 is beyond the bound 1.15292e\+18, so nothing is sent; write"
    ):
        decoded_sum([part], 4)


def test_a_value_that_is_no_number_is_refused() -> None:
    part = FeatureStatistics(np.array([1]), np.array([0]), np.array([np.nan]), np.array([0.0]))
    with pytest.raises(Problem, match="tensor mean: is nan; nothing is sent"):
        decoded_sum([part], 4)
