"""Folding against a reference in float64, over real update files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.errors import MethodError, Problem
from fedsilo.methods.reading import mean_weights
from fedsilo.methods.state import Tree
from fedsilo.updates import round_updates as fold
from fedsilo.updates import summation
from fedsilo.updates.figures import mean_metrics
from fedsilo.updates.round_updates import StoredUpdates
from fedsilo.wire import Contract, ExpectedBlock, SigningKey, specs_of
from tests.updates import write_update

KEY = SigningKey.generate()
DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8")
PRECISION = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-15}
shapes = st.sampled_from([(), (0,), (1,), (7,), (3, 5), (2, 3, 4)])


def store(
    directory: Path, trees: Mapping[str, Tree], samples: Mapping[str, int] | None = None, **metrics: float
) -> StoredUpdates:
    """One update file per silo."""
    paths = {}
    for silo, tree in trees.items():
        blocks = [(ExpectedBlock("model", s.name, s.shape, s.dtype), tree[s.name]) for s in specs_of(tree)]
        paths[silo] = directory / f"{silo}.update"
        write_update(
            paths[silo],
            job="job",
            task="task",
            round=1,
            sender=silo,
            contract=Contract(tuple(block for block, _ in blocks), tuple(metrics)),
            task_digest=bytes(32),
            samples=(samples or {}).get(silo, 1),
            metrics=metrics,
            blocks=blocks,
            key=KEY,
        )
    return StoredUpdates(paths)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Tree]:
    """Trees of up to five silos with equal tensors, and with values of their own."""
    specs = draw(st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), min_size=1, max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return {
        f"s{silo}": {
            f"t{place}": np.asarray(random.normal(0, 9, shape) * (10 if "int" in dtype else 1))
            .clip(0 if dtype == "uint8" else -1e3, 255)
            .astype(dtype)
            for place, (shape, dtype) in enumerate(specs)
        }
        for silo in range(draw(st.integers(1, 5)))
    }


@settings(max_examples=40)
@given(trees=trees(), data=st.data())
def test_a_weighted_sum_is_that_of_float64(
    trees: dict[str, Tree], data: st.DataObject, tmp_path: Path
) -> None:
    weights = {silo: data.draw(st.floats(0, 1)) / len(trees) for silo in trees}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            summation, "CHUNK_ELEMENTS", 4
        )  # so that tensors have several chunks, and a last one that is shorter
        found = store(tmp_path, trees).weighted_sum("model", weights)
    for name, first in trees["s0"].items():
        terms = [weights[silo] * tree[name].astype(np.float64) for silo, tree in trees.items()]
        exact, size = np.sum(terms, axis=0), np.sum(np.abs(terms), axis=0)
        assert (found[name].dtype, found[name].shape) == (first.dtype, first.shape)
        if first.dtype.kind == "f":
            assert np.all(np.abs(found[name] - exact) <= PRECISION[first.dtype.name] * size + 1e-7)
        else:
            assert np.all(np.abs(found[name].astype(np.float64) - exact) <= 1 + 1e-8)


@settings(max_examples=40)
@given(trees=trees(), data=st.data())
def test_the_order_of_arrival_does_not_change_a_byte(
    trees: dict[str, Tree], data: st.DataObject, tmp_path: Path
) -> None:
    weights = {silo: data.draw(st.floats(0, 1)) for silo in trees}
    first = store(tmp_path, trees).weighted_sum("model", weights)
    arrival = data.draw(st.permutations(list(trees)))
    store(tmp_path, {silo: trees[silo] for silo in arrival})
    paths = {silo: tmp_path / f"{silo}.update" for silo in trees}
    second = StoredUpdates(paths).weighted_sum("model", {silo: weights[silo] for silo in arrival})
    assert {name: value.tobytes() for name, value in first.items()} == {
        name: value.tobytes() for name, value in second.items()
    }


@settings(max_examples=40)
@given(trees=trees(), data=st.data())
def test_threads_and_pieces_do_not_change_a_byte(
    trees: dict[str, Tree], data: st.DataObject, tmp_path: Path
) -> None:
    weights = {silo: data.draw(st.floats(0, 1)) for silo in trees}
    updates = store(tmp_path, trees)
    whole: Tree = {}
    for silo, tree in trees.items():
        for name, array in tree.items():
            wide = {"f2": "f4", "f4": "f4"}.get(array.dtype.str[1:], "f8")
            whole[name] = whole.get(name, np.zeros(array.shape, wide)) + array.astype(wide) * np.dtype(
                wide
            ).type(weights[silo])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summation, "CHUNK_ELEMENTS", 2)
        patch.setattr(fold, "MAX_OPEN_FILES", 2)
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
        found = updates.weighted_sum("model", weights)
    for name, first in trees["s0"].items():
        exact = whole[name]
        if first.dtype.kind != "f":
            limits = np.iinfo(first.dtype)
            exact = np.trunc(exact + np.copysign(1e-9, exact)).clip(limits.min, limits.max)
        assert found[name].tobytes() == np.asarray(exact).astype(first.dtype).tobytes()


def test_an_update_that_became_shorter_is_not_summed(tmp_path: Path) -> None:
    updates = store(tmp_path, {"a": {"w": np.ones(8, np.float32)}})
    os.truncate(tmp_path / "a.update", (tmp_path / "a.update").stat().st_size - 1)
    with pytest.raises(Problem, match=r"malformed: update .*a\.update"):
        updates.weighted_sum("model", {"a": 1.0})


def test_updates_of_different_shapes_are_not_summed(tmp_path: Path) -> None:
    updates = store(tmp_path, {"a": {"w": np.ones(2, np.float32)}, "b": {"w": np.ones((2, 1), np.float32)}})
    with pytest.raises(MethodError, match=r"tensor w: has shape \[2\] in one update and \[2, 1\] in another"):
        updates.weighted_sum("model", {"a": 0.5, "b": 0.5})


def test_equal_integers_keep_their_value_whatever_the_weights(tmp_path: Path) -> None:
    """Ten times each of these shares adds up to less than ten in floating-point numbers."""
    steps: Tree = {"steps": np.array(123_457), "small": np.array([10, 1], np.int32)}
    updates = store(tmp_path, {f"s{n}": steps for n in range(3)}, {"s0": 1, "s1": 2, "s2": 4})
    shares = mean_weights(updates, "samples", updates.silos)
    assert sum(10 * share for share in shares.values()) < 10
    mean = updates.weighted_sum("model", shares)
    assert {name: value.tolist() for name, value in mean.items()} == {"steps": 123_457, "small": [10, 1]}


def test_silos_without_a_weight_and_blocks_of_other_kinds_do_not_count(tmp_path: Path) -> None:
    updates = store(tmp_path, {"a": {"w": np.ones(2, np.float32)}, "b": {"w": np.full(2, 5, np.float32)}})
    assert updates.weighted_sum("model", {"b": 2.0})["w"].tolist() == [10, 10]
    assert updates.weighted_sum("class_means", {"a": 1.0}) == {}


def test_tensors_of_one_silo_are_copies_that_outlive_the_file(tmp_path: Path) -> None:
    updates = store(tmp_path, {"a": {"w": np.arange(3, dtype=np.float32)}})
    tree = updates.tensors("a", "model")
    (tmp_path / "a.update").unlink()
    tree["w"] += 1
    assert tree["w"].tolist() == [1, 2, 3]


@given(samples=st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_mean_weights_follow_the_samples_and_add_up_to_one(samples: list[int]) -> None:
    sizes = {f"s{n}": size for n, size in enumerate(samples)}
    updates: Any = SimpleNamespace(samples=sizes.__getitem__)
    assert mean_weights(updates, "uniform", list(sizes)) == dict.fromkeys(sizes, 1 / len(sizes))
    if sum(samples) == 0:
        with pytest.raises(MethodError, match=r"no silo of s0.* states any sample"):
            mean_weights(updates, "samples", list(sizes))
        return
    weights = mean_weights(updates, "samples", list(sizes))
    assert weights == {silo: size / sum(samples) for silo, size in sizes.items()}
    assert sum(weights.values()) == pytest.approx(1)


def test_metrics_are_weighted_by_samples_over_the_silos_that_have_any(tmp_path: Path) -> None:
    empty: Tree = {}
    one = store(tmp_path, {"a": empty}, {"a": 30}, loss=1.0)
    other = store(tmp_path, {"b": empty}, {"b": 10}, loss=3.0, accuracy=0.5)
    none = store(tmp_path, {"c": empty}, {"c": 0})
    paths = {silo: tmp_path / f"{silo}.update" for u in (one, other, none) for silo in u.silos}
    assert mean_metrics(StoredUpdates(paths)) == {"accuracy": 0.5, "loss": 1.5}
