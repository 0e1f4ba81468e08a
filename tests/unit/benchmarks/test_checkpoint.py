"""A cell of a table that several runs of a command finish is the cell that one of them would have run."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from benchmarks.tables import checkpoint, definition, results
from benchmarks.tables.cells import Cell, cells
from benchmarks.tables.running import Place, Progress, TimeIsUp, run_all, run_one
from tests.unit.benchmarks.test_layouts import archive
from tests.unit.benchmarks.test_table_runs import table

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"training": {"rounds": 4, "optimizer": {"state": "keep"}}},
    "scaffold": {"training": {"rounds": 3, "optimizer": {"momentum": 0.0}}},
    "fedconcat": {
        "method": {"config": {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2}},
        "training": {"rounds": 4},
        "privacy": {"minSamplesPerClass": 1},
    },
    "fedbr": {"training": {"rounds": 3, "optimizer": {"momentum": 0.0}}},
    "map": {"data": {"validationFraction": 0.5}, "training": {"rounds": 3}},
}


def cell_of(method: str) -> Cell:
    [cell] = cells(dataclasses.replace(table(), rows=["FedAvg"], columns=["mnist"]), 1)
    job = definition.merge_patch({"method": {"name": method}}, METHODS[method])
    return dataclasses.replace(cell, settings=definition.merge_patch(cell.settings, {"job": job}))


class Stopping(Progress):
    """Whoever watches types Ctrl-C after every round."""

    @override
    def round(self, cell: Cell, done: int, rounds: int) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", METHODS)
def test_a_round_at_a_time_gives_the_figures_of_one_run(method: str, tmp_path: Path) -> None:
    archive(tmp_path)
    cell, chosen, folder = cell_of(method), table(), tmp_path / "open"
    whole = run_one(chosen, cell, Place(tmp_path, "cpu", 0, "a test"), {}, Progress([cell], []))
    place = Place(tmp_path, "cpu", 0, "a test", folder)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_one(chosen, cell, place, {}, Stopping([cell], []))
        assert checkpoint.path_of(folder, cell.digest).stat().st_size > 0
    last = run_one(chosen, cell, place, {}, Progress([cell], []))
    assert (last.accuracies, last.by_class, last.personal) == (
        whole.accuracies,
        whole.by_class,
        whole.personal,
    )
    same = [{name: cost for name, cost in one.costs.items() if name != "seconds"} for one in (last, whole)]
    assert same[0] == same[1]


def test_time_that_is_up_within_a_round_stops_there(tmp_path: Path) -> None:
    archive(tmp_path)
    cell, place = cell_of("fedavg"), Place(tmp_path, "cpu", 0, "a test", tmp_path / "open", time.monotonic())
    with pytest.raises(TimeIsUp):
        run_one(table(), cell, place, {}, Stopping([cell], []))
    assert not place.open or not place.open.exists(), "there is no complete round to keep"


def test_what_is_finished_leaves_no_open_cell_and_what_is_not_leaves_no_line(tmp_path: Path) -> None:
    archive(tmp_path)
    chosen = dataclasses.replace(table(), rows=["FedAvg"], columns=["mnist"])
    some, path, folder = cells(chosen, 1), tmp_path / "runs.jsonl", tmp_path / "open"
    stopped = Place(tmp_path, "cpu", 0, "a test", folder, time.monotonic())
    assert run_all(chosen, some, path, stopped) == {}
    assert not path.exists() and not folder.exists(), "its time was over before it began"
    assert run_all(chosen, some, path, dataclasses.replace(stopped, until=None)) == {}
    [run] = results.read(path)
    assert len(run.accuracies) == 2 and not list(folder.glob("*"))


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    archive(tmp_path)
    cell, path = cell_of("scaffold"), checkpoint.path_of(tmp_path, "0" * 64)
    with pytest.raises(KeyboardInterrupt):
        run_one(table(), cell, Place(tmp_path, "cpu", 0, "a test", tmp_path), {}, Stopping([cell], []))
    saved = checkpoint.path_of(tmp_path, cell.digest)
    found = checkpoint.load(saved)
    assert found is not None and checkpoint.load(path) is None
    assert found.progress.position >= 1 and len(found.progress.history) == 1
    assert len(found.progress.private) == 2 and all(state.trees for state in found.progress.private.values())
    checkpoint.save(path, found)
    again = checkpoint.load(path)
    assert again is not None
    assert json.dumps(again.traffic) == json.dumps(found.traffic)
    for one, other in zip(
        [found.progress.state, *found.progress.private.values()],
        [again.progress.state, *again.progress.private.values()],
        strict=True,
    ):
        assert one.values == other.values and list(one.trees) == list(other.trees)
        for name in one.trees:
            for (key, tensor), (same, second) in zip(
                one.tree(name).items(), other.tree(name).items(), strict=True
            ):
                assert key == same and tensor.tobytes() == second.tobytes() and tensor.dtype == second.dtype
