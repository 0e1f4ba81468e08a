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
    make, validate, check, run, evaluate, export = terminal.commands
    terminal.type(make)
    assert "2 classes" in terminal.type(validate)
    findings, shown, by_class = blocks("docs/guides/tables.md", "text")
    assert terminal.type(check) == findings
    said = terminal.type(run)
    for line in shown.splitlines()[1:]:
        assert " ".join(line.split()) in " ".join(said.split()), said
    assert by_class in terminal.type(evaluate)
    terminal.type(export)
    assert (terminal.folder / "runs" / "tables" / "model.onnx").exists()
