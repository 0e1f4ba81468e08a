"""A tree that was stored and loaded is known to be stored, until it is another one."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

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
