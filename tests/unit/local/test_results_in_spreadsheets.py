"""The CSV files of a sweep, as a spreadsheet opens them: what a manifest or a package names is never run."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fedsilo.local.sweep.grid import GridPoint
from fedsilo.local.sweep.results import RESULTS, ROUNDS, write_results
from fedsilo.local.sweep.runs import GridRun
from fedsilo.validation import load_manifest
from tests.paths import ROOT

FORMULAS = ('=HYPERLINK("https://evil.example")', "+1+cmd|' /C calc'!A0", "@SUM(1+1)", "-2+3", "\t=1", "\r=1")


def written_row(directory: Path, value: Any) -> dict[str, str]:
    point = GridPoint(
        {"spec.method.config.x": value}, 0, load_manifest(ROOT / "tests/unit/api/good/digits.yaml")
    )
    document = {
        "phase": "Succeeded",
        "metrics": {"=accuracy": -0.5, "r2": 1e-7},
        "rounds": 1,
        "seconds": 1.5,
        "model": {"sha256": "0" * 64},
    }
    write_results(directory, [GridRun(point, document, [{"round": 1, "metrics": document["metrics"]}])])
    with (directory / ROUNDS).open(newline="") as rounds:
        assert next(csv.reader(rounds))[-2:] == ["'=accuracy", "r2"]
    with (directory / RESULTS).open(newline="") as results:
        return next(csv.DictReader(results))


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_is_a_text_there(formula: str, tmp_path: Path) -> None:
    row = written_row(tmp_path, formula)
    assert row["spec.method.config.x"] == "'" + formula.replace("\r", " ")
    assert row["'=accuracy"] == "-0.5", "numbers stay numbers"
    assert row["r2"] == "1e-07"


@pytest.mark.parametrize(
    ("value", "cell"), [(-1.5, "-1.5"), ("fedavg", "fedavg"), ([-1], "[-1]"), (True, "true")]
)
def test_all_else_is_as_it_was(value: Any, cell: str, tmp_path: Path) -> None:
    assert written_row(tmp_path, value)["spec.method.config.x"] == cell
