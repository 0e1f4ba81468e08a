"""The files of the papers' tables: every row and column is a manifest, and what a cell is and measures."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import pytest

from benchmarks.tables import definition
from benchmarks.tables.cells import Cell, cells
from benchmarks.tables.datasets import DATASETS
from benchmarks.tables.definition import Table
from benchmarks.tables.measures import figure
from benchmarks.tables.running import Place, Progress, run_one
from fedsilo.api.data import DataSpec
from fedsilo.api.job import ModelSpec
from fedsilo.learning.models import build_model
from fedsilo.methods import registry
from tests.unit.benchmarks.test_layouts import leaf


@pytest.mark.parametrize("scale", [pytest.param("full", marks=pytest.mark.thorough), "reduced"])
@pytest.mark.parametrize("name", definition.names())
def test_every_row_and_every_column_is_a_valid_manifest(name: str, scale: definition.Scale) -> None:
    chosen = definition.choose(name, scale)
    found = [cell for cell in cells(chosen, 1) if not cell.missing_reason()]
    rows = {cell.row: cell for cell in found}
    columns = {cell.column: cell for cell in found}
    apart = [cell for cell in found if cell.row in chosen.table.columns[cell.column].rows]
    assert columns.keys() == {
        name for column in chosen.columns for name in chosen.table.measured_columns(column)
    }
    for cell in dict.fromkeys([*rows.values(), *columns.values(), *apart]):
        # Silos differ by their number only, and a hundred of them take their time.
        few = dataclasses.replace(cell, settings=cell.settings | {"silos": 5})
        assert len(few.manifest(Path("data"), "cpu").silos) == (1 if few.settings.get("pooled") else 5)


def test_one_table_has_every_method_that_trains() -> None:
    listed = {row.method for row in definition.choose("methods", "reduced").paper.rows.values()}
    built_in = [
        name for name in registry.names() if registry.get(name).__module__.startswith("fedsilo.methods.")
    ]
    assert {*built_in} - {"statistics"} <= listed, "add them to benchmarks/tables/papers/methods.yaml"


def test_a_digest_is_of_the_settings_alone() -> None:
    chosen = definition.choose("fedconcat", "reduced", ["FedAvg", "fedprox"], ["mnist-c2"])
    one, other = cells(chosen, 1)
    assert one.digest == cells(chosen, 1)[0].digest != other.digest
    assert cells(chosen, 2)[2].digest != one.digest
    assert dataclasses.replace(one, row="another title").digest == one.digest
    changed = definition.merge_patch(one.settings, {"job": {"training": {"batchSize": 31}}})
    assert dataclasses.replace(one, settings=changed).digest != one.digest


def test_digests_stay() -> None:
    """What is on file counts as long as this does: change it only with the settings of the table."""
    cell = Cell("row", "column", 0, {"b": {"c": 1.5}, "a": 1})
    assert cell.digest == "dcb14bfe0a2c38f5d74fcee12711bb4156d659ab7ac43ca7eb3031e42401dce2"


def test_a_column_may_differ_for_a_row() -> None:
    """With the rounds that move as many bytes as 50 of FedAvg, which depend on the size of the images."""
    chosen = definition.choose("fedconcat", "full", ["FedAvg", "FedConcat"], ["fmnist-c2", "cifar10-c2"])
    spent = {}
    for cell in cells(chosen, 1):
        job = cell.settings["job"]
        spent[cell.column, cell.row] = (
            job["training"]["rounds"],
            job["method"]["config"].get("classifierRounds"),
        )
    assert spent == {
        ("fmnist-c2", "FedAvg"): (50, None),
        ("fmnist-c2", "FedConcat"): (177, 143),
        ("cifar10-c2", "FedAvg"): (50, None),
        ("cifar10-c2", "FedConcat"): (234, 200),
    }
    (reduced,) = cells(definition.choose("fedconcat", "reduced", ["FedConcat"], ["fmnist-c2"]), 1)
    assert reduced.settings["job"]["training"]["rounds"] == 36


@pytest.mark.parametrize("name", ["fedconcat-1", "fedconcat-2", "fedconcat-3", "creff-1"])
def test_fedconcat_moves_as_much_as_the_others(name: str) -> None:
    """2 P T_e + K (P - P_c) + 2 (K d C + C) T_c = 2 P R within two per cent; FedConcat-ID has a round more."""
    rows = ["FedAvg", "FedConcat", "FedConcat-ID"]
    by_column: dict[str, dict[str, Cell]] = {}
    for cell in cells(definition.choose(name, "full", rows), 1):
        by_column.setdefault(cell.column, {})[cell.row] = cell
    for column, found in by_column.items():
        moved = {row: numbers_moved(cell) for row, cell in found.items()}
        for row in rows[1:]:
            assert moved[row] / moved["FedAvg"] == pytest.approx(1, abs=0.02), (column, row)


def numbers_moved(cell: Cell) -> float:
    """To and from a silo in all rounds in which it takes part."""
    job = cell.settings["job"]
    whole, head, features, classes = sizes(json.dumps(job["model"], sort_keys=True), cell.dataset)
    drawn = job.get("participation", {}).get("fraction", 1.0)
    config = job["method"]["config"]
    if "encoderRounds" not in config:
        return float(2 * whole * job["training"]["rounds"] * drawn)
    rounds = config["encoderRounds"] + (cell.method == "fedconcat-id")
    stacked = config["clusters"] * features * classes + classes
    encoders = config["clusters"] * (whole - head)
    return float(2 * whole * rounds * drawn + encoders + 2 * stacked * config["classifierRounds"] * drawn)


@cache
def sizes(model: str, dataset: str) -> tuple[int, int, int, int]:
    """P, P_c, d and C."""
    known = DATASETS[dataset]
    data = DataSpec(dataset="images", classes=known.classes, input_shape=known.shape)
    built = build_model(ModelSpec.model_validate(json.loads(model)), data, seed=0)
    head = sum(p.numel() for p in built.classifier.parameters())
    whole = sum(p.numel() for p in built.parameters())
    return whole, head, (head - known.classes) // known.classes, known.classes


def test_columns_that_measure_one_run_share_it() -> None:
    chosen = definition.choose("fedbr", "reduced", ["FedAvg"], ["rotmnist", "rotmnist-80"])
    accuracy, rounds = cells(chosen, 1)
    assert accuracy.digest == rounds.digest


@pytest.mark.parametrize(
    ("measure", "value"),
    [("last", 0.8), ("best5", 0.8), ("last10", 0.7), ("rounds:0.8", 20.0), ("rounds:0.95", None)],
)
def test_measures(measure: str, value: float | None) -> None:
    accuracies = [0.1, 0.9, 0.4, 0.55, 0.55, 0.75, 0.8, 0.75, 0.75, 0.75, 0.8]
    found = figure(measure, accuracies, [10 * n for n in range(1, 12)])
    assert found == (value if value is None else pytest.approx(value))


def test_the_tail_is_the_last_classes() -> None:
    assert figure("tail:2", [0.5], [1], [0.9, 0.2, 0.4]) == pytest.approx(0.3)
    assert figure("tail:2", [0.5], [1]) is None


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(SystemExit, match="fedconcat-1"):
        definition.choose("fedconcta", "full")
    with pytest.raises(SystemExit, match=r"--rows: 'FedAvgg' is not there; use some of FedAvg,"):
        definition.choose("fedconcat", "full", ["FedAvgg"])


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ({"title": "Mean", "meanOf": ["mnist", "other"]}, "'other' is not a column that has runs"),
        ({"title": "Mean", "meanOf": ["mean"]}, "'mean' is not a column that has runs"),
        ({"title": "Mean", "meanOf": ["mnist"], "silos": 3}, "a mean has no runs and no silos"),
    ],
)
def test_a_mean_that_cannot_be_is_refused(column: dict[str, object], fault: str) -> None:
    columns = {"mnist": {"title": "MNIST"}, "mean": column}
    with pytest.raises(ValueError, match=fault):
        Table.model_validate({"title": "A table", "columns": columns, "reduced": {"note": "Two rounds."}})


def test_a_cell_whose_silos_are_users(tmp_path: Path) -> None:
    folder = Path(leaf(tmp_path, {"few": 4, "w1": 6, "w2": 6}))
    chosen = definition.choose("map-12", "reduced", ["FedAvg"], ["q30-e2"])
    [cell] = cells(chosen, 1)
    settings = definition.merge_patch(
        cell.settings, {"silos": 2, "job": {"training": {"rounds": 2, "warmupRounds": 1}}}
    )
    cell = dataclasses.replace(cell, settings=settings)
    [silo, _] = cell.manifest(folder, "cpu").silos
    assert silo.spec.datasets[0].partition is None and silo.spec.datasets[0].config["user"] == 0
    run = run_one(chosen, cell, Place(folder, "cpu", 0, "a test"), {}, Progress([cell], []))
    assert run.rounds == [2] and len(run.by_class) == 2, "the test images are of classes 1 and 2"


def test_tables_have_the_papers_figures() -> None:
    table = definition.choose("fedconcat-1", "full").table
    assert table.reported_figure("FedConcat", "cifar10-c2") == definition.ReportedFigure(56.9, 0.2)
    assert table.reported_figure("FedConcat-ID", "fmnist-dir0.5") == definition.ReportedFigure(87.5, 0.2)
    assert table.reported_figure("FedConcat", "mnist-c2") is None
    table = definition.choose("map-2", "full").table
    assert table.reported_figure("ScaMAP", "cinic-resnet56") == definition.ReportedFigure(82.5, 0.25)
    table = definition.choose("fedbr", "full").table
    assert table.reported_figure("DANN", "cifar100-43") is None
