"""What a silo releases of statistics of features, whatever its trainer says."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.errors import PolicyRefused
from fedsilo.silo import reply_limits
from fedsilo.silo.reply import require_enough_values
from fedsilo.wire import ExpectedBlock
from tests.federate import job_spec
from tests.unit.silo.test_policy import silo

HONEST_STATISTICS = {
    "count": np.array([5, 0, 9]),
    "missing": np.array([1, 6, 0]),
    "mean": np.array([0.5, 0.0, -2.0]),
    "m2": np.array([1.5, 0.0, 0.0]),
    "histogram/2": np.array([0, 9, 0]),
}


def require(tensors: dict[str, np.ndarray], minimum: int = 5) -> None:
    blocks = [
        ExpectedBlock("feature_statistics", name, array.shape, array.dtype.name)
        for name, array in tensors.items()
    ]
    require_enough_values(blocks, tensors.__getitem__, minimum, minimum)


def test_counts_of_zero_and_from_the_minimum_on_may_leave() -> None:
    require(HONEST_STATISTICS)


@pytest.mark.parametrize(
    ("parts", "left_out"), [([0, 5, 0], 4), ([9, 9, 0], -9), ([0, 8, 0], 1)], ids=["small", "twice", "one"]
)
def test_a_part_that_follows_from_the_count_and_the_others_is_refused(
    parts: list[int], left_out: int
) -> None:
    with pytest.raises(
        PolicyRefused, match=f"block histogram/2: the feature's count less all parts is {left_out},"
    ):
        require(HONEST_STATISTICS | {"histogram/2": np.array(parts)})


@pytest.mark.parametrize("parts", [[0, 0, 0], [9, 0, 0], [0, 0, 9]])
def test_all_or_none_or_enough_of_a_histogram_may_be_left_out(parts: list[int]) -> None:
    require(HONEST_STATISTICS | {"histogram/2": np.array(parts)})


def test_of_sums_any_part_may_be_left_out() -> None:
    """A silo whose minimum is no larger than the job's leaves no part out, which a guard need not hold it to."""
    blocks = [
        ExpectedBlock("feature_statistics", name, array.shape, array.dtype.name)
        for name, array in HONEST_STATISTICS.items()
    ]
    contents = HONEST_STATISTICS | {"histogram/2": np.array([0, 8, 0])}
    require_enough_values(blocks, contents.__getitem__, 5, 1)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("count", [5, 0, 4], "block count: place 2 is 4, fewer than the 5 that minSamplesPerFeature asks"),
        ("count", [5, 0, -1], "block count: place 2 is -1, fewer than the 5"),
        ("histogram/2", [0, 1, 5], "block histogram/2: place 1 is 1, fewer than the 5"),
        ("mean", [0.5, 7.0, 0.0], "block mean: place 1 is 7, the statistic of a feature whose count is 0"),
        ("m2", [0.5, 1e-9, 0.0], "block m2: place 1 is 1e-09, the statistic of a feature whose count is 0"),
        ("total", [3], "block total: is none of count, missing, mean, m2 and histogram/<feature>"),
    ],
)
def test_what_few_values_say_is_refused(name: str, values: list[float], message: str) -> None:
    with pytest.raises(PolicyRefused, match=message.replace("/", "/")):
        require(HONEST_STATISTICS | {name: np.array(values)})


def test_a_mean_without_counts_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="block mean: place 0"):
        require({"mean": np.array([1.0])})


def test_other_kinds_are_not_looked_at() -> None:
    require_enough_values(
        [ExpectedBlock("class_means", "count", (1,), "int64")], lambda name: np.ones(1), 5, 5
    )


@pytest.mark.parametrize(
    ("own", "job", "minimum"),
    [({}, 1, 5), ({"minSamplesPerFeature": 9}, 1, 9), ({"minSamplesPerFeature": 2}, 7, 7)],
)
def test_the_larger_minimum_applies_and_an_image_has_many_values(
    own: dict[str, int], job: int, minimum: int
) -> None:
    spec = job_spec("statistics", 1, data={"inputShape": [3, 4, 4]}, privacy={"minSamplesPerClass": job})
    limits = reply_limits.ReplyLimits.of(spec, silo(minSamplesPerClass=5, **own))
    assert reply_limits.min_samples_per_feature(spec, silo(minSamplesPerClass=5, **own)) == minimum
    assert limits.min_values_per_feature == minimum * 16
    assert limits.and_those(reply_limits.ReplyLimits(1)).min_values_per_feature == minimum * 16
