"""What is equal in all silos comes back equal from every mean, to the bit, whatever type, weights and rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsilo.api.aggregation import RuleSpec
from fedsilo.methods.reading import mean_weights
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload
from fedsilo.simulation.silos import SimulatedUpdate
from fedsilo.transforms.robust_mean.rule import RobustMean
from fedsilo.updates import summation
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.wire.tensors import DTYPES

LARGE_NUMBERS: dict[str, list[float | int]] = {
    "float16": [0.1, 2049.0],
    "float32": [0.1, 2.0**24 + 2, 1.7e9, 3e38],
    "float64": [0.1, 2.0**53 + 2, 1e300],
    "int32": [-1, 2**24 + 1, 2**31 - 1, -(2**31)],
    "int64": [-1, 2**53 + 1, 2**63 - 1, -(2**63), 1_764_339_903_000_000_001],
    "uint8": [255],
    "int8": [-128],
    "uint16": [65_535],
    "uint32": [2**32 - 1],
    "uint64": [2**53 + 1, 2**64 - 1],
    "bool": [True, False],
}
RULES: list[dict[str, Any]] = [
    {"name": "median"},
    {"name": "trimmed-mean", "byzantine": 1},
    {"name": "krum", "byzantine": 1},
    {"name": "multi-krum", "byzantine": 1},
    {"name": "geometric-median"},
    {"name": "norm-clipping", "norm": 0.5},
]


@st.composite
def numbers(draw: st.DrawFn) -> np.ndarray:
    """An array of any type with any finite numbers."""
    dtype = DTYPES[draw(st.sampled_from(sorted(LARGE_NUMBERS)))]
    size = draw(st.integers(1, 9))
    if dtype.kind == "f":
        width: Any = 8 * dtype.itemsize
        found = draw(
            st.lists(
                st.floats(allow_nan=False, allow_infinity=False, width=width), min_size=size, max_size=size
            )
        )
    elif dtype.kind == "b":
        found = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    else:
        limits = np.iinfo(dtype)
        found = draw(st.lists(st.integers(int(limits.min), int(limits.max)), min_size=size, max_size=size))
    return np.array(found, dtype)


def updates_of(trees: list[Tree], samples: list[int] | None = None) -> InMemoryUpdates:
    counts = samples or [1] * len(trees)
    return InMemoryUpdates(
        {
            f"s{n}": SimulatedUpdate(count, {}, {"model": tree}, None)
            for n, (count, tree) in enumerate(zip(counts, trees, strict=True))
        }
    )


@given(array=numbers(), samples=st.lists(st.integers(1, 10**6), min_size=1, max_size=9))
@example(array=np.array([0.1, -0.0], np.float32), samples=[1, 1, 1])
def test_a_mean_of_equal_tensors_is_the_tensor(array: np.ndarray, samples: list[int]) -> None:
    updates = updates_of([{"w": array}] * len(samples), samples)
    updates.most_open = 2  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summation, "CHUNK_ELEMENTS", 2)
        for rule in ("samples", "uniform"):
            mean = updates.weighted_sum("model", mean_weights(updates, rule, updates.silos))["w"]
            assert (mean.dtype, mean.tobytes()) == (array.dtype, array.tobytes())


@settings(max_examples=40)
@given(array=numbers(), samples=st.lists(st.integers(1, 10**6), min_size=3, max_size=9), data=st.data())
def test_other_elements_do_not_change_whole_numbers_that_are_equal(
    array: np.ndarray, samples: list[int], data: st.DataObject
) -> None:
    """Pieces of two elements, and files that are opened two at a time."""
    odd = data.draw(st.integers(0, len(samples) - 1))
    trees: list[Tree] = [{"w": np.append(array, np.ones(1, array.dtype))} for _ in samples]
    trees[odd]["w"][-1] = 0
    updates = updates_of(trees, samples)
    updates.most_open = 2  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summation, "CHUNK_ELEMENTS", 2)
        mean = updates.weighted_sum("model", mean_weights(updates, "samples", updates.silos))["w"]
    whole = array.astype(np.float64) % 1 == 0
    assert mean[:-1][whole].tobytes() == array[whole].tobytes()
    if array.dtype.kind == "f":
        exact = 1 - samples[odd] / sum(samples)
        assert mean[-1] == pytest.approx(exact, abs=2e-3 if array.dtype.itemsize == 2 else 1e-6)
    else:
        assert mean[-1] == 0


@pytest.mark.parametrize("dtype", LARGE_NUMBERS)
def test_large_numbers_stay_whole(dtype: str) -> None:
    tree: Tree = {"w": np.array(LARGE_NUMBERS[dtype], dtype)}
    updates = updates_of([tree] * 3, [1, 2, 4])
    assert (
        updates.weighted_sum("model", mean_weights(updates, "samples", updates.silos))["w"].tolist()
        == tree["w"].tolist()
    )


def test_a_mean_of_integers_is_truncated_towards_zero_and_stays_in_its_type() -> None:
    trees: list[Tree] = [{"w": np.array([-4, 30_000_001, 2**63 - 1 - n])} for n in range(3)]
    for n, tree in enumerate(trees):
        tree["w"][:2] += n
    trees[2]["w"][0] = -4
    mean = updates_of(trees).weighted_sum("model", dict.fromkeys(("s0", "s1", "s2"), 1 / 3))["w"].tolist()
    assert mean[:2] == [-3, 30_000_002]
    assert abs(mean[2] - (2**63 - 2)) <= 1024


@pytest.mark.parametrize(
    ("integers", "weight", "total"),
    [([2**51, 2**51 + 2], 0.5, 2**51 + 1), ([2**50] * 3, 1.0, 3 * 2**50), ([-(2**50)] * 3, 1.0, -3 * 2**50)],
)
def test_whole_numbers_that_float64_has_are_added_exactly(
    integers: list[int], weight: float, total: int
) -> None:
    updates = updates_of([{"w": np.array([integer])} for integer in integers])
    found = updates.weighted_sum("model", dict.fromkeys(updates.silos, weight))["w"]
    assert found.tolist() == [total]


def test_a_sum_that_is_no_mean_adds_equal_numbers() -> None:
    updates = updates_of([{"w": np.array([-2]), "x": np.array([0.5])}] * 3)
    total = updates.weighted_sum("model", dict.fromkeys(updates.silos, 1.0))
    assert (total["w"].tolist(), total["x"].tolist()) == ([-6], [1.5])


def test_a_tensor_that_a_silo_left_out_counts_for_the_others_only() -> None:
    updates = updates_of([{"x": np.array([0.5])}, {"x": np.array([0.5])}, {}])
    assert updates.weighted_sum("model", dict.fromkeys(updates.silos, 1 / 3))["x"] == pytest.approx(1 / 3)


def test_a_mean_over_the_silos_that_sent_a_class_keeps_what_is_equal() -> None:
    payload = Payload("class_means", "class_means", (2,), per_class=True)
    block: Tree = {"class_means/1": np.array([0.1, 0.7], np.float32)}
    updates = InMemoryUpdates(
        {f"s{n}": SimulatedUpdate(1, {}, {"class_means": block}, None) for n in range(3)}
    )
    found = updates.combine([payload], "samples")["class_means/1"]
    assert found.tobytes() == block["class_means/1"].tobytes()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
@settings(max_examples=20)
@given(array=numbers())
def test_a_robust_mean_of_equal_numbers_is_the_number(rule: dict[str, Any], array: np.ndarray) -> None:
    sent: Tree = {"w": array, "other": np.zeros(1)}
    trees: list[Tree] = [{"w": array, "other": np.array([float(n)])} for n in range(6)]
    updates = updates_of(trees)
    mean = RobustMean(RuleSpec.model_validate(rule), sent).mean(
        updates, "model", dict.fromkeys(updates.silos, 1 / 6)
    )
    assert (mean["w"].dtype, mean["w"].tobytes()) == (array.dtype, array.tobytes())
