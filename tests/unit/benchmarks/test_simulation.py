"""The benchmark of simulations: the tuned loop ends with the hand-written one's model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.hand_written import Clients, hand_written
from benchmarks.simulation import TOLERANCE, Job, _difference, manifest_of, plan_of


@pytest.mark.thorough
def test_the_tuned_loop_ends_with_the_same_model(tmp_path: Path) -> None:
    job = Job(10, 5, 2, 40, None, False, 2, 10)
    plan_of(job, tmp_path / "plan.npz")
    files = ("plan.npz", "model.npz")
    subprocess.run(
        [sys.executable, "-m", "benchmarks.tuned", *(tmp_path / file for file in files)], check=True
    )
    times = hand_written(Clients(manifest_of(job)), tmp_path / "model.safetensors", 0)
    assert len(times) == 2
    assert _difference(tmp_path / "model.safetensors", tmp_path / "model.npz") <= TOLERANCE
    with np.load(tmp_path / "model.npz") as model:
        changed: dict[str, Any] = {name: array + 2 * TOLERANCE for name, array in model.items()}
    np.savez(tmp_path / "other.npz", **changed)
    assert _difference(tmp_path / "model.safetensors", tmp_path / "other.npz") > TOLERANCE
