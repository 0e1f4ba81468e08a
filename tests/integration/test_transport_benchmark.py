"""A run of the benchmark's federation: real aggregator, real guards and light trainers as processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.transport.federation import CHECKED_FLOOR, Load, run_fedsilo, run_floor
from benchmarks.transport.model import SentModel
from benchmarks.transport.steps import STEPS, WATERFALL
from benchmarks.transport.waterfall import steps_of_round

pytestmark = pytest.mark.thorough

LOAD = Load(SentModel.of(1.0, 4), silos=4, rounds=2, processes=3)
"""Two of the processes have a single silo, one has two. The mean of four equal models is the same model."""


def test_a_federation_runs_to_its_end_and_every_step_is_recorded(tmp_path: Path) -> None:
    run, records = run_fedsilo(LOAD, tmp_path, WATERFALL)
    assert (len(run.seconds), len(run.uploads), run.lost) == (2, 8, 0)
    assert {role: use.processes for role, use in run.roles.items()} == {
        "aggregator": 1,
        "guards": 3,
        "trainers": 3,
    }
    found = steps_of_round(records, run).found
    assert {(step.role, step.label) for step in STEPS} == {(one.role, one.label) for one in found}
    moved = LOAD.silos * LOAD.model.size
    assert all(use.written >= moved for use in run.roles.values())
    # Resident memory of a process with NumPy in it, and no more of it than a small model can add.
    assert all(2e7 < use.idle <= use.peak < use.idle + 1e8 for use in run.roles.values())


@pytest.mark.parametrize("processes", [1, 3])
def test_a_floor_is_measured_in_the_same_way(tmp_path: Path, processes: int) -> None:
    run = run_floor(CHECKED_FLOOR, Load(LOAD.model, silos=3, rounds=2, processes=processes), tmp_path)
    assert len(run.seconds) == 2
    assert {role: use.processes for role, use in run.roles.items()} == {"server": 1, "silos": processes}
    assert run.roles["server"].written >= 4 * LOAD.model.size
