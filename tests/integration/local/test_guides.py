"""The guides on one machine: their commands, and that what they show is what comes out."""

from __future__ import annotations

import shutil

from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal


@runs("docs/guides/tables.md")
def test_tables(terminal: Terminal) -> None:
    examples = terminal.folder / "examples"
    examples.unlink()
    shutil.copytree(ROOT / "examples" / "tables", examples / "tables", ignore=shutil.ignore_patterns("data"))
    make, validate, run, evaluate, export = terminal.commands
    terminal.type(make)
    assert "2 classes" in terminal.type(validate)
    said = terminal.type(run)
    shown, by_class = blocks("docs/guides/tables.md", "text")
    for line in shown.splitlines()[1:]:
        assert " ".join(line.split()) in " ".join(said.split()), said
    assert by_class in terminal.type(evaluate)
    terminal.type(export)
    assert (terminal.folder / "runs" / "tables" / "model.onnx").exists()
