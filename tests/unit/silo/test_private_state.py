"""A silo's private state advances exactly when the aggregator has the update that belongs to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.methods.state import State
from fedsilo.silo.private_state import PrivateStates

FIRST = State({"control": {"w": np.arange(3, dtype=np.float32)}}, {"rounds": 1})


@pytest.fixture
def states(tmp_path: Path) -> PrivateStates:
    return PrivateStates(tmp_path)


def test_before_the_first_acknowledged_reply_there_is_none(states: PrivateStates) -> None:
    states.store("r1", FIRST)
    assert states.load(None) == State()
    assert list(states.directory.iterdir()) == [], "a reply that nobody acknowledged left nothing"


def test_the_acknowledged_state_is_read_and_every_other_one_dropped(states: PrivateStates) -> None:
    states.store("r1", FIRST)
    states.store("r2", State(values={"rounds": 2}))
    found = states.load("r1")
    assert found.values == {"rounds": 1}
    assert found.tree("control")["w"].tolist() == [0, 1, 2]
    assert [path.name for path in states.directory.iterdir()] == ["r1"]


def test_a_tree_that_did_not_change_outlives_the_state_that_it_came_from(states: PrivateStates) -> None:
    states.store("r1", FIRST)
    states.store("r2", states.load("r1").with_values(rounds=2))
    found = states.load("r2")
    assert found.values == {"rounds": 2}
    assert found.tree("control")["w"].tolist() == [0, 1, 2]


def test_a_silo_that_keeps_nothing_leaves_no_directory(states: PrivateStates) -> None:
    states.store("r1", State())
    assert list(states.directory.iterdir()) == []
    assert states.load("r1") == State()


def test_files_of_the_institution_beside_the_states_stay(states: PrivateStates) -> None:
    (states.directory / "personal.json").write_text("{}")
    states.load(None)
    assert (states.directory / "personal.json").exists()
