"""What becomes of a table's cells: runs that go on where they were left, pages, curves and pictures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tables import curves, definition, rendering, results, scatter
from benchmarks.tables.__main__ import main
from benchmarks.tables.cells import Cell, cells
from benchmarks.tables.definition import Column, Paper, Reduction, Row, Table
from benchmarks.tables.measures import personal_drawn
from benchmarks.tables.results import Run
from benchmarks.tables.running import Place, Progress, _play, run_all
from benchmarks.tables.scatter import Point
from tests.pages import runs
from tests.terminal import Terminal
from tests.unit.benchmarks.test_layouts import archive

GOLDEN = Path(__file__).with_name("page.golden")


def test_a_wide_table_has_one_run_for_all_columns_and_what_it_cost() -> None:
    chosen = definition.choose("methods", "reduced", ["FedAvg", "FedPHP", "Centralized", "SCAFFOLD"])
    some = [cell for cell in cells(chosen, 2) if cell.row != "SCAFFOLD"]
    assert len({cell.digest for cell in some}) == 6
    costs = {"up": 1e5, "down": 2e5, "moved": 3e6, "seconds": 0.5}
    found = {
        cell: dataclasses.replace(
            synthetic(chosen, cell, [0.3, 0.4]),
            costs={"seconds": 0.5} if cell.row == "Centralized" else costs,
            personal=0.8 if cell.row == "FedPHP" else None,
        )
        for cell in some
    }
    page = rendering.page(chosen, found, {}, "picture.png")
    moved = "100.0 ± 0.0 | 200.0 ± 0.0 | 3.00 ± 0.00"
    assert f"| FedAvg | 2 | 40.0 ± 0.0 | – | {moved} | 0.50 ± 0.00 |" in page
    assert f"| FedPHP | 2 | 40.0 ± 0.0 | 80.0 ± 0.0 | {moved} | 0.50 ± 0.00 |" in page
    assert "| Centralized | 2 | 40.0 ± 0.0 | – | – | – | – | 0.50 ± 0.00 |" in page
    assert "- SCAFFOLD: not run" in page and "the paper's" not in page.partition("mean ±")[2]


def test_the_picture_names_what_no_other_beats(tmp_path: Path) -> None:
    points = [
        Point("little", 1, 30, 0),
        Point("good", 2, 50, 1),
        Point("as dear, worse", 2, 40, 0),
        Point("FedAvg", 2, 35, 0),
        Point("worst", 3, 10, 0),
        Point("worse", 3, 20, 0),
        Point("dear", 4, 45, 0),
    ]
    assert [point.name for point in scatter.front(points)] == ["little", "good"]
    assert [point.name for point in scatter.named_points(points)] == [
        "worst",
        "worse",
        "little",
        "FedAvg",
        "dear",
        "good",
    ]
    assert scatter.spaced_heights([1, 1.5, 1.5, 9], 1) == [1, 2, 3, 9]
    chosen = definition.choose("methods", "reduced", ["FedAvg", "Centralized"])
    found = {
        cell: dataclasses.replace(synthetic(chosen, cell, [0.3, 0.4]), costs={"moved": 1e6})
        for cell in cells(chosen, 1)
    }
    assert scatter.draw(chosen, found, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    nothing = {cell: dataclasses.replace(run, costs={}) for cell, run in found.items()}
    assert not scatter.draw(chosen, nothing, tmp_path / "b.png")


def table() -> definition.TableSelection:
    rows = {"FedAvg": Row(method="fedavg"), "Ours": Row(method="fedprox"), "Other": Row(method="nothing")}
    columns = {
        "mnist": Column(title="MNIST, shared"),
        "again": Column(title="MNIST, rounds for 50 %", measure="rounds:0.5"),
        "svhn": Column(title="SVHN", data={"dataset": "svhn"}),
        "cifar10": Column(title="CIFAR-10", data={"dataset": "cifar10"}),
        "mean": Column(title="Mean of two", meanOf=["mnist", "cifar10"]),
    }
    only = Table(
        title="A table",
        notes=["A note."],
        columns=columns,
        values={"FedAvg": "53.6±0.8 12 80.1 - 67.3", "Other": "50.0"},
        silos=2,
        data={"dataset": "mnist"},
        partition={"scheme": "iid"},
        job={
            "model": {"name": "mlp", "config": {"hidden": [4]}},
            "training": {"rounds": 2},
            "participation": {"roundDeadline": "1m"},
        },
        reduced=Reduction(note="Two rounds."),
    )
    paper = Paper(citation="Somebody. Something. 2024.", rows=rows, tables={"1": only})
    return definition.TableSelection("test-1", paper, only, list(rows), list(columns), "reduced")


def test_a_mean_is_run_as_its_columns_are() -> None:
    whole = table()
    chosen = dataclasses.replace(whole, rows=["FedAvg"], columns=["mean", "mnist"])
    assert [cell.column for cell in cells(chosen, 1)] == ["mnist", "cifar10"]


def test_a_mean_of_what_silos_lack_reports_it() -> None:
    """And one of runs that have no seed in common."""
    chosen = table()
    mean = chosen.table.columns["mean"].model_copy(update={"measure": "personal"})
    columns = dict(chosen.table.columns) | {"mean": mean}
    chosen = dataclasses.replace(chosen, table=chosen.table.model_copy(update={"columns": columns}))
    some = {(cell.row, cell.column, cell.seed): cell for cell in cells(chosen, 2)}

    def mean_of(runs: list[Run]) -> str:
        found = results.of(chosen, some.values(), runs)
        page = rendering.page(chosen, found, {}, None)
        return page.partition("## Mean of two")[2]

    one, other = some["FedAvg", "mnist", 0], some["FedAvg", "cifar10", 0]
    assert "| its silos have no models" in mean_of([synthetic(chosen, cell, [0.5]) for cell in (one, other)])
    own = [dataclasses.replace(synthetic(chosen, cell, [0.5]), personal=0.6) for cell in (one, other)]
    assert "| FedAvg | 60.0 | 1 | 67.3 | -7.3 |" in mean_of(own)
    places = [("FedAvg", "cifar10", 1), ("Ours", "mnist", 0), ("Ours", "cifar10", 0)]
    unmatched = [own[0], *(synthetic(chosen, some[place], [0.5]) for place in places)]
    assert "| FedAvg | no seed that all have |" in mean_of(unmatched)


def test_own_models_are_those_of_all_silos_or_of_the_last_rounds(tmp_path: Path) -> None:
    archive(tmp_path)
    [cell] = cells(dataclasses.replace(table(), rows=["FedAvg"], columns=["mnist"]), 1)
    job = {
        "data": {"validationFraction": 0.5},
        "method": {"name": "map"},
        "participation": {"fraction": 0.5, "roundDeadline": "1m"},
    }
    settings = definition.merge_patch(cell.settings, {"silos": 4, "job": job})
    cell = dataclasses.replace(cell, settings=settings)
    place = Place(tmp_path, "cpu", 0, "a test")
    history = _play(cell, place, Progress([cell], [])).history
    first, last = history[0]["silos"], history[-1]["silos"]
    assert len(first) == len(last) == 2
    accuracies = history[-1]["personal"]
    assert accuracies.keys() == first.keys() | last.keys()
    of_all, of_drawn = history[-1]["metrics"]["personal_accuracy"], personal_drawn(history)
    assert of_all == pytest.approx(np.mean(list(accuracies.values())))
    assert of_drawn == pytest.approx(np.mean([accuracies[silo] for silo in last]))
    assert personal_drawn([]) is personal_drawn([{"silos": {"a": {}}, "metrics": {}}]) is None


def test_the_page_takes_the_figure_of_the_measure() -> None:
    chosen = table()
    columns = dict(chosen.table.columns) | {"mnist": Column(title="MNIST", measure="personal-drawn")}
    chosen = dataclasses.replace(chosen, table=chosen.table.model_copy(update={"columns": columns}))
    cell = next(cell for cell in cells(chosen, 1) if (cell.row, cell.column) == ("FedAvg", "mnist"))
    run = dataclasses.replace(synthetic(chosen, cell, [0.5]), personal=0.6, personal_drawn=0.7)
    assert "| FedAvg | 70.0 | 1 | 53.6 ± 0.8 | +16.4 |" in rendering.page(chosen, {cell: run}, {}, None)
    older = dataclasses.replace(run, personal_drawn=None)
    assert "| FedAvg | its silos have no models" in rendering.page(chosen, {cell: older}, {}, None)


def synthetic(chosen: definition.TableSelection, cell: Cell, accuracies: list[float]) -> Run:
    return Run(
        table=chosen.name,
        scale=chosen.scale,
        row=cell.row,
        column=cell.column,
        seed=cell.seed,
        digest=cell.digest,
        settings=cell.settings,
        rounds=[1, 2],
        accuracies=accuracies,
        personal=None,
        seconds=1.0,
        command="python -m benchmarks.tables test",
        machine={"processor": "A processor", "cores": "2"},
        date="2026-01-02T03:04:05Z",
    )


def test_the_page_of_a_table() -> None:
    chosen = table()
    some = cells(chosen, 2)
    curves_of = {("FedAvg", 0): [0.3, 0.5], ("FedAvg", 1): [0.4, 0.6], ("Ours", 0): [0.2, 0.4]}
    runs = [
        synthetic(chosen, cell, curves_of[cell.row, cell.seed])
        for cell in some
        if cell.column == "mnist" and (cell.row, cell.seed) in curves_of
    ]
    # The mean of FedAvg is over this seed alone, and Ours has none.
    [other] = [cell for cell in some if (cell.row, cell.column, cell.seed) == ("FedAvg", "cifar10", 1)]
    runs.append(synthetic(chosen, other, [0.1, 0.2]))
    found = results.of(chosen, some, runs)
    why = {(cell.row, cell.column): reason for cell in some if (reason := cell.missing_reason())}
    assert rendering.page(chosen, found, why, "test.png") == GOLDEN.read_text(encoding="utf-8")


def test_curves_are_means_over_the_rounds_that_all_runs_have(tmp_path: Path) -> None:
    chosen = table()
    cell = cells(chosen, 1)[0]
    one = synthetic(chosen, cell, [0.2, 0.4])
    other = dataclasses.replace(one, rounds=[2, 4], accuracies=[0.6, 0.8])
    x, y = curves.mean_curve([one, other])
    assert x.tolist() == [1.0] and y.tolist() == [pytest.approx(50)]
    assert curves.draw(chosen, {cell: one}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_a_column_that_measures_the_runs_of_another_has_no_panel() -> None:
    chosen = dataclasses.replace(table(), columns=["mnist", "again"])
    found = {cell: synthetic(chosen, cell, [0.2]) for cell in cells(chosen, 1)}
    assert {cell.column for cell in found} == {"mnist", "again"}
    assert curves.panels(chosen, found) == ["mnist"]


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    chosen, path = table(), tmp_path / "runs.jsonl"
    run = synthetic(chosen, cells(chosen, 1)[0], [0.2, 0.4])
    results.append(path, run)
    with path.open("a") as file:
        file.write('{"table": "te')
    results.append(path, run)
    assert results.read(path) == [run, run]


def test_a_table_from_the_command_line_and_its_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path)
    monkeypatch.setattr(definition, "names", lambda: ["test-1"])
    monkeypatch.setattr(definition, "read", lambda _: table().paper)
    given = ["tables", "test", "--seeds", "1", "--data", str(tmp_path), "--into", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", given)
    assert main() == 0
    first = capsys.readouterr().err
    assert "FedAvg, mnist, seed 0: " in first and "fashion" not in first
    assert "Ours, svhn, seed 0: " in first and "svhn/test_32x32.mat" in first
    lines = (tmp_path / "out" / "test-reduced.jsonl").read_text().splitlines()
    assert [(json.loads(line)["row"], json.loads(line)["rounds"]) for line in lines] == [
        ("FedAvg", [1, 2]),
        ("Ours", [1, 2]),
    ]
    assert str(tmp_path) not in lines[0]
    by_class = json.loads(lines[0])["by_class"]
    assert len(by_class) == 10 and sum(by_class) / 10 == pytest.approx(json.loads(lines[0])["accuracies"][-1])
    page = (tmp_path / "out" / "test-1-reduced.md").read_text()
    assert "the method nothing is not there" in page and str(tmp_path) not in page
    monkeypatch.setattr(
        "sys.argv", [*given[:-6], "--rows", "FedAvg", "Ours", "--columns", "mnist", *given[-6:]]
    )
    assert main() == 0
    assert "seed 0" not in capsys.readouterr().err
    assert (tmp_path / "out" / "test-reduced.jsonl").read_text().splitlines() == lines


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path)
    monkeypatch.setattr(definition, "names", lambda: ["test-1"])
    monkeypatch.setattr(definition, "read", lambda _: table().paper)
    given = ["tables", "test", "--columns", "mnist", "--seeds", "1"]
    monkeypatch.setattr("sys.argv", [*given, "--data", str(tmp_path), "--into", str(tmp_path)])

    def stop(path: Path, run: Run) -> None:
        appended(path, run)
        raise KeyboardInterrupt

    appended = results.append
    monkeypatch.setattr(results, "append", stop)
    assert main() == 130
    assert len(results.read(tmp_path / "test-reduced.jsonl")) == 1
    assert "| FedAvg |" in (tmp_path / "test-1-reduced.md").read_text()


@pytest.mark.thorough
@runs("docs/benchmarks.md")
def test_the_commands_of_the_page(terminal: Terminal, tmp_path: Path) -> None:
    """The page's commands on forty images: one cell to its end, then Ctrl-C; and cells that lack what they need."""
    data = {"/data": archive(tmp_path)}
    (terminal.folder / "docs").unlink()
    into = terminal.folder / "docs" / "results" / "tables"
    activate, fedconcat, creff, methods = terminal.commands
    terminal.type(activate)
    with terminal.start_command(fedconcat, data) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
    assert first.startswith("[1/") and "mnist-c2, seed 0: " in first
    run, *more = results.read(into / "fedconcat-reduced.jsonl")
    assert len(more) < 100, "it was not stopped"
    assert run.command.startswith("python -m benchmarks.tables fedconcat --scale reduced --seeds 3")
    assert (into / "fedconcat-1-reduced.md").exists() and (into / "fedconcat-1-reduced.png").exists()

    assert terminal.type(creff, data) == "docs/results/tables/creff-1-full.md\n"
    page = (into / "creff-1-full.md").read_text()
    assert "CIFAR-10-LT, IF=100" in page and "| CReFF |" not in page, (
        "neither these images nor a GPU is there"
    )

    assert terminal.type(methods, data) == "docs/results/tables/methods-1-reduced.md\n"
    page = (into / "methods-1-reduced.md").read_text()
    assert "| FedAvg |" not in page and "cifar" in page, "these images are not there"


def test_what_prevents_a_run_is_reported_in_every_column_that_it_belongs_to(tmp_path: Path) -> None:
    columns = ["mnist-lenet", "mnist-lenet-own"]
    chosen = definition.choose("map-3", "reduced", ["FedAvg"], columns)
    place = Place(tmp_path, "cpu", 0, "command")
    why = run_all(chosen, cells(chosen, 1), tmp_path / "runs.jsonl", place)
    assert why.keys() == {("FedAvg", column) for column in columns}
    assert all("mnist" in reason for reason in why.values())
