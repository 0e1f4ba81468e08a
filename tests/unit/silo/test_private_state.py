"""A silo's private state advances exactly when the aggregator has the update that belongs to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.errors import FileDamaged, MethodError
from fedsilo.methods.state import State
from fedsilo.silo.private_state import PrivateStateStore

FIRST_STATE = State({"control": {"w": np.arange(3, dtype=np.float32)}}, {"rounds": 1})


@pytest.fixture
def states(tmp_path: Path) -> PrivateStateStore:
    return PrivateStateStore(tmp_path)


def test_before_the_first_acknowledged_reply_there_is_none(states: PrivateStateStore) -> None:
    states.store("r1", FIRST_STATE)
    assert states.load(None) == State()
    assert list(states.directory.iterdir()) == [], "a reply that nobody acknowledged left nothing"


def test_the_acknowledged_state_is_read_and_every_other_one_dropped(states: PrivateStateStore) -> None:
    states.store("r1", FIRST_STATE)
    states.store("r2", State(values={"rounds": 2}))
    found = states.load("r1")
    assert found.values == {"rounds": 1}
    assert found.tree("control")["w"].tolist() == [0, 1, 2]
    assert [path.name for path in states.directory.iterdir()] == ["r1"]


def test_a_tree_that_did_not_change_outlives_the_state_that_it_came_from(states: PrivateStateStore) -> None:
    states.store("r1", FIRST_STATE)
    states.store("r2", states.load("r1").with_values(rounds=2))
    found = states.load("r2")
    assert found.values == {"rounds": 2}
    assert found.tree("control")["w"].tolist() == [0, 1, 2]


def test_a_silo_that_keeps_nothing_leaves_no_directory(states: PrivateStateStore) -> None:
    states.store("r1", State())
    assert list(states.directory.iterdir()) == []
    assert states.load("r1") == State()


def test_files_of_the_institution_beside_the_states_stay(states: PrivateStateStore) -> None:
    (states.directory / "personal.json").write_text("{}")
    states.load(None)
    assert (states.directory / "personal.json").exists()


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["tree", "state.json"])
def test_one_flipped_bit_is_an_error_that_names_the_file(name: str, states: PrivateStateStore) -> None:
    states.store("r1", FIRST_STATE)
    states.store("r2", FIRST_STATE)
    stored = states.directory / "r1"
    found = next(path for path in stored.iterdir() if (path.name == "state.json") == (name == "state.json"))
    flip(found, -3)
    with pytest.raises(FileDamaged, match=f"{found}: its .*restore its directory"):
        PrivateStateStore(states.directory).load("r1")
    assert (states.directory / "r2").exists(), "nothing is dropped while a person has to look"


def test_a_file_that_is_missing_is_no_empty_state(states: PrivateStateStore) -> None:
    states.store("r1", FIRST_STATE)
    (states.directory / "r1" / "state.json").unlink()
    with pytest.raises(FileDamaged, match=r"state\.json: is missing"):
        states.load("r1")


def test_what_this_process_has_stored_is_not_read_again(
    states: PrivateStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.store("r1", FIRST_STATE)
    read: list[object] = []
    monkeypatch.setattr("hashlib.file_digest", lambda *_: read.append(1))
    assert states.load("r1").values == {"rounds": 1}
    assert read == []


@pytest.mark.parametrize("value", [float("nan"), {"rates": [float("inf")]}, np.zeros(2)])
def test_values_that_json_cannot_state_are_the_methods_error(
    states: PrivateStateStore, value: object
) -> None:
    with pytest.raises(MethodError, match=r"State\.values"):
        states.store("r1", State(values={"rate": value}))


def test_the_state_after_another_task_is_not_taken(states: PrivateStateStore) -> None:
    states.store("r1", FIRST_STATE)
    states.store("r2", FIRST_STATE.with_values(rounds=2))
    (states.directory / "r2" / "state.json").replace(states.directory / "r1" / "state.json")
    with pytest.raises(FileDamaged, match=r"state\.json: is the state after r2, another task"):
        states.load("r1")
