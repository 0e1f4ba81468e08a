"""Calibration on real samples: one more figure, better than the skewed classifier's, and the encoder as it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from benchmarks.tables import reference
from benchmarks.tables.cells import cells
from benchmarks.tables.definition import IIDCalibration, Row
from benchmarks.tables.results import Run, machine
from benchmarks.tables.running import Place, Progress, run_one
from tests.unit.benchmarks.test_layouts import archive
from tests.unit.benchmarks.test_tables import table


def test_samples_are_of_every_class_and_follow_from_the_seed() -> None:
    labels = np.array([0] * 50 + [1] * 3 + [4] * 20)
    chosen = reference.drawn(labels, 5, seed=1)
    assert np.bincount(labels[chosen]).tolist() == [5, 3, 0, 0, 5]
    assert len(set(chosen.tolist())) == len(chosen)
    np.testing.assert_array_equal(chosen, reference.drawn(labels, 5, seed=1))
    assert not np.array_equal(chosen, reference.drawn(labels, 5, seed=2))


def test_a_row_that_is_calibrated_on_real_samples(tmp_path: Path) -> None:
    archive(tmp_path)
    defined = table()
    defined.paper.rows["Reference"] = Row(method="fedavg", iid=IIDCalibration(perClass=2, epochs=300))
    chosen = dataclasses.replace(defined, rows=["FedAvg", "Reference"], columns=["mnist"])
    runs: list[Run] = []
    for cell in cells(chosen, 1):
        place = Place(tmp_path, "cpu", 0, "command")
        runs.append(run_one(chosen, cell, place, machine(), Progress([cell], [])))
    without, with_samples = runs
    assert without.digest != with_samples.digest
    assert with_samples.settings["iid"] == {"perClass": 2, "epochs": 300}
    assert with_samples.rounds == [*without.rounds, 3]
    assert with_samples.accuracies[:2] == without.accuracies
    assert with_samples.by_class != without.by_class
