"""A tree that was stored and loaded is known to be stored, until it is another one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import MethodError
from fedsilo.methods.state import LoadedTree, State, StoredTree, Tree, stored_of


@pytest.fixture
def stored_state(tmp_path: Path) -> State:
    tree: Tree = {"w": np.arange(6, dtype=np.float32), "b": np.zeros(2, np.float32)}
    return State({"model": tree}).store(tmp_path)


def test_a_loaded_tree_is_not_written_again(stored_state: State, tmp_path: Path) -> None:
    (path,) = tmp_path.iterdir()
    made = path.stat().st_ino
    again = State({"best": stored_state.tree("model")}).store(tmp_path)
    assert again.refs() == {"best": stored_state.refs()["model"]}
    assert [found.stat().st_ino for found in tmp_path.iterdir()] == [made]


def change_weights(tree: Tree) -> Tree:
    tree["w"] = np.ones(6, np.float32)
    return tree


def longer(tree: Tree) -> Tree:
    tree["more"] = np.ones(6, np.float32)
    return tree


def without_b(tree: Tree) -> Tree:
    del tree["b"]
    return tree


def reorder_weights(tree: Tree) -> Tree:
    tree["w"] = tree.pop("w")
    return tree


@pytest.mark.parametrize("change", [change_weights, longer, without_b, reorder_weights])
def test_a_loaded_tree_that_was_changed_is_stored_as_it_is(
    stored_state: State, tmp_path: Path, change: object
) -> None:
    assert callable(change)
    tree: Tree = change(stored_state.tree("model"))
    assert stored_of(tree) is None
    plain = State({"model": dict(tree)}).store(tmp_path).refs()
    assert State({"model": tree}).store(tmp_path).refs() == plain != stored_state.refs()


def test_its_arrays_cannot_be_written_to(stored_state: State) -> None:
    with pytest.raises(ValueError, match="read-only"):
        stored_state.tree("model")["w"][0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        stored_state.tree("model")["w"].flags.writeable = True


def test_a_copy_is_a_tree_as_any_other(stored_state: State) -> None:
    tree = stored_state.tree("model")
    assert isinstance(tree, LoadedTree)
    for other in (
        copy.copy(tree),
        copy.deepcopy(tree),
        pickle.loads(pickle.dumps(tree)),
        dict(tree),
        tree.copy(),
    ):
        assert type(other) is dict
        assert stored_of(other) is None


def test_a_tree_of_another_directory_is_copied(stored_state: State, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    kept = State({"mine": stored_state.tree("model")}).store(other).trees["mine"]
    assert isinstance(kept, StoredTree)
    assert kept.path.parent == other and kept.load()["w"].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.fixture(params=["in memory", "in files"])
def kept_state(request: pytest.FixtureRequest, tmp_path: Path) -> State:
    """A state as a simulation keeps it, and as processes do."""
    made = State({"own": {"rounds": np.ones(1), "seen": np.zeros(2)}}, {"note": "x"})
    if request.param == "in memory":
        return made.in_memory()
    stored = made.store(tmp_path)
    return State.from_json(stored.to_json(), tmp_path)


def test_a_kept_tree_is_read_as_a_mapping_wherever_it_is_kept(kept_state: State) -> None:
    tree: Any = kept_state.trees["own"]
    assert (isinstance(tree, Mapping), isinstance(tree, dict)) == (True, False)
    assert tree.get("rounds").tolist() == tree["rounds"].tolist() == [1]
    assert (list(tree), len(tree), "seen" in tree, tree.get("other")) == (["rounds", "seen"], 2, True, None)
    assert {name: array.shape for name, array in {**tree}.items()} == {"rounds": (1,), "seen": (2,)}
    assert kept_state.trees.get("none", {}).get("rounds") is None


def test_a_kept_tree_cannot_be_changed_wherever_it_is_kept(kept_state: State) -> None:
    tree: Any = copy.copy(pickle.loads(pickle.dumps(kept_state))).trees["own"]
    with pytest.raises(TypeError):
        tree["rounds"] = np.zeros(1)
    with pytest.raises(ValueError, match="read-only"):
        tree["rounds"][0] = 2
    kept_state.tree("own")["rounds"] = np.zeros(1)
    assert kept_state.tree("own")["rounds"].tolist() == tree["rounds"].tolist() == [1]


def test_a_kept_tree_that_was_looked_at_is_not_written_again(stored_state: State, tmp_path: Path) -> None:
    assert stored_state.trees["model"]["b"].tolist() == [0, 0]
    assert State(stored_state.trees).store(tmp_path).refs() == stored_state.refs()
    copied = pickle.loads(pickle.dumps(stored_state.trees["model"]))
    assert copied == stored_state.trees["model"]


def test_numbers_of_numpy_and_pytorch_are_kept_as_numbers(tmp_path: Path) -> None:
    import torch

    values = {"n": np.int64(3), "x": np.float32(0.5), "one": np.ones(1), "loss": torch.tensor(2.0), "l": [1]}
    plain = {"n": 3, "x": 0.5, "one": 1.0, "loss": 2.0, "l": [1]}
    made = State({}, values)
    assert made.in_memory().values == plain
    assert made.store(tmp_path).to_json()["values"] == plain
    with pytest.raises(MethodError, match="values hold what JSON cannot say"):
        State({}, {"many": np.ones(2)}).in_memory()
