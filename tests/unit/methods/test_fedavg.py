"""FedAvg jobs against numbers that the released codes produced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.federate import model_of
from tests.fixture_networks import fixture_tree, load_fixture
from tests.paths import needs_fixtures
from tests.unit.methods.harness import as_recorded, assert_close

pytestmark = needs_fixtures
ROUNDS = (1, 2, 3)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize(("fixture", "prefix"), [("niid_fedavg", "round{}/"), ("map_fedavg", "round{}/g/")])
def test_every_round_is_that_of_the_released_code(
    tmp_path: Path, fixture: str, prefix: str, rounds: int
) -> None:
    federation = as_recorded(tmp_path, "fedavg", fixture, rounds)
    assert_close(model_of(federation), fixture_tree(load_fixture(fixture), prefix.format(rounds)))


@pytest.mark.parametrize("rounds", ROUNDS)
def test_partial_participation_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    fixture = "feddynrepo_fedavg_partial"
    npz = load_fixture(fixture)
    federation = as_recorded(tmp_path, "fedavg", fixture, rounds)
    assert_close(model_of(federation), fixture_tree(npz, f"round{rounds}/sel/"))
    for line, selected in zip(federation.history(), npz["selected"], strict=False):
        assert line["samples"] == {
            f"silos/c{k}": int(npz["sizes"][k]) for k in np.flatnonzero(selected).tolist()
        }
