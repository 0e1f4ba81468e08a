"""What a person sees: one line for each round where output goes to a file, a table in a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedsilo.api.data import DataSpec
from fedsilo.api.loading import load
from fedsilo.engine.status import failed_status
from fedsilo.local.display import LiveDisplay, show_result
from fedsilo.local.progress import RunProgress
from fedsilo.local.workdir import RunDirectory
from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import arguments, fedsilo

LINES = [
    r"federation/digits: fedavg, mlp, 2 silos: starting, working directory WORKDIR",
    r"trainers: north, east: .+",
    r"round 1/2   accuracy 0\.\d{4}   loss \d\.\d{4}   training loss \d\.\d{4}   silos 2/2   11\.\d kB received"
    r"(   about \d+ s left)?",
    r"round 2/2   accuracy 0\.\d{4}   loss \d\.\d{4}   training loss \d\.\d{4}   silos 2/2   11\.\d kB received",
    r"training each silo alone, and all silos' data pooled, for comparison",
    r"federation/digits: fedavg, 2 rounds, \d+ s",
    r"┏━+┳━+┳━+┳━+┓",
    r"┃ trained on     ┃ samples ┃ classes             ┃ accuracy ┃",
    r"┡━+╇━+╇━+╇━+┩",
    r"│ north alone    │     647 │ 0 1 2 3 4 5 6 7 8 9 │ +\d\d\.\d% │",
    r"│ east alone     │     646 │ 0 1 2 3 4 5 6 7 8 9 │ +\d\d\.\d% │",
    r"├─+┼─+┼─+┼─+┤",
    r"│ all, pooled    │   1,293 │                     │ +\d\d\.\d% │",
    r"│ all, federated │   1,293 │                     │ +\d\d\.\d% │",
    r"└─+┴─+┴─+┴─+┘",
    r"model   WORKDIR/model\.safetensors",
    r"sha256  [0-9a-f]{64}",
]


def test_the_lines_of_a_run_whose_output_goes_to_a_file(tmp_path: Path) -> None:
    manifest = write(tmp_path / "digits.yaml", silos("north", "east"))
    workdir = tmp_path / "run"
    ended = fedsilo(*arguments(manifest, workdir, "--alone"))
    assert ended.returncode == 0
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert len(lines) == len(LINES), ended.stdout
    for line, shape in zip(lines, LINES, strict=True):
        assert re.fullmatch(shape.replace("WORKDIR", re.escape(str(workdir))), line), line


def _status(message: str = "") -> dict[str, Any]:
    states = ("Reported", "Awaited", "Failed", "Idle")
    return {
        "phase": "Running",
        "conditions": [{"type": "Running", "status": "True", "reason": "Running", "message": message}],
        "round": 7,
        "rounds": 50,
        "metrics": {"accuracy": 0.91234567, "loss": 0.2876},
        "silos": [
            {
                "name": name,
                "state": state,
                "samples": 12345,
                "lastRound": 7,
                "bytesSent": 7 * 250_000,
            }
            for name, state in zip(("north", "east", "south", "hospital-of-a-long-name"), states, strict=True)
        ],
    }


def drawn_screen(progress: RunProgress, width: int = 120) -> str:
    """What a terminal shows."""
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system=None)
    display = LiveDisplay(console)
    with display.showing(progress):
        display.update(progress)
    return re.sub(r"(\x1b\[[0-9;?]*[A-Za-z]|\r)+", "\n", screen.getvalue())


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_in_a_terminal_fits_its_width(width: int, tmp_path: Path) -> None:
    names = ("north", "east", "south", "hospital-of-a-long-name")
    federation = load(write(tmp_path / "digits.yaml", silos(*names)))
    progress = RunProgress(federation, RunDirectory(tmp_path / "run"))
    progress.status = _status()
    shown = drawn_screen(progress, width)
    assert "federation/digits: fedavg, mlp, 4 silos" in shown
    assert "round 7/50   accuracy 0.9123   loss 0.2876" in shown
    assert "│ hospital-of-a-long-name │ Idle     │  12,345 │          7 │ 1.8 MB │" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_the_table_says_what_a_person_should_know(tmp_path: Path) -> None:
    federation = load(write(tmp_path / "digits.yaml", silos("north", "east")))
    progress = RunProgress(federation, RunDirectory(tmp_path / "run"))
    assert "starting aggregator, guards and trainers" in drawn_screen(progress)
    progress.status = _status("the aggregator's disk is full")
    assert "loss 0.2876   the aggregator's disk is full" in drawn_screen(progress)
    progress.status = failed_status("DataInvalid", "no file scans").document()
    assert "no file scans" in drawn_screen(progress), "an aggregator that could not begin knows of no rounds"


def test_a_message_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    message = "set config.size to [height, width] in 'digits'; " + "a long line is not cut " * 10
    failed = {"phase": "Failed", "reason": "DataInvalid", "message": message}
    show_result(failed, {}, DataSpec(dataset="digits", classes=10, input_shape=(1, 8, 8)))
    assert capsys.readouterr().out == f"Failed: DataInvalid: {message}\n"


def test_why_a_silo_was_lost_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    why = (
        "failed in round 1: DataInvalid: use [1, height, width] or [features], not [/b]; [bold]correct[/] it"
    )
    outcome = {
        "phase": "Succeeded",
        "job": "federation/digits",
        "method": "fedavg",
        "rounds": 2,
        "seconds": 1.0,
        "samples": 9,
        "metrics": {"accuracy": 0.5},
        "silos": [
            {"name": "north", "state": "Finished", "samples": 9},
            {"name": "east", "state": "Failed", "message": why},
        ],
        "model": {"path": "runs/[x]/model.safetensors", "sha256": "0"},
    }
    show_result(outcome, {}, DataSpec(dataset="digits", classes=10, input_shape=(1, 8, 8)))
    shown = capsys.readouterr().out.splitlines()
    assert f"lost    east: {why}" in shown
    assert "model   runs/[x]/model.safetensors" in shown
