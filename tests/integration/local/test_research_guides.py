"""The guides for researchers: their commands are typed, and their notebook is executed."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

import fedsilo
from tests.integration.local.runs import ENVIRONMENT
from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal
from tests.unit.test_public_surface import imported_names

# Nothing is fetched, and the environment of the tests stays as it is.
OPTIONS = "--offline --no-cache --no-deps --no-build-isolation --target own"
UV = f"{sys.executable} -m uv pip install --python {sys.executable} {OPTIONS}"

NOTEBOOK = ROOT / "docs" / "guides" / "from-a-notebook.ipynb"


@runs("docs/guides/clients-and-sweeps.md")
@pytest.mark.thorough
def test_the_commands_of_clients_and_sweeps_run(terminal: Terminal) -> None:
    _shorten(terminal.folder)
    validate, run, sweep, export = terminal.commands
    assert "10: client-0, client-1" in terminal.type(validate)
    terminal.type(run)
    said = terminal.type(sweep).splitlines()
    assert [line.split()[:2] for line in said[-3:-1]] == [["0.01", "3"], ["0.1", "3"]]
    folder = terminal.folder / "runs" / "sweep"
    with (folder / "results.csv").open() as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2", "3", "1", "2", "3"]
    assert (folder / "curves.svg").read_text().count(">learning rate 0.1<") == 2
    assert "TorchScript, checked on 256 examples" in terminal.type(export)


@runs("docs/guides/own-method.md")
@pytest.mark.thorough
def test_a_method_of_ones_own_is_installed_and_compared(terminal: Terminal) -> None:
    page, example = "docs/guides/own-method.md", ROOT / "examples" / "own-method"
    assert blocks(page, "python") == [
        (example / f"{name}.py").read_text() for name in ("clipped", "anchored")
    ]
    assert blocks(page, "toml")[0] in (example / "pyproject.toml").read_text()
    _shorten(terminal.folder, fraction=0.5)
    shutil.copytree(example, terminal.folder / "examples" / "own-method")  # building leaves files there
    install, describe, sweep, describe_other = terminal.commands
    terminal.type(install, {"pip install": UV})
    terminal.environment["PYTHONPATH"] = "own"
    assert "class_means" in terminal.type(describe_other)
    assert terminal.type(describe).startswith("clipped: Averaging of clipped changes")
    said = terminal.type(sweep).splitlines()
    assert [line.split()[1:3] for line in said[-3:-1]] == [['"fedavg"}', "3"], ['"clipped"}', "3"]]
    first, other = (line.split()[3:6] for line in said[-3:-1])
    assert first != other, "a round of FedAvg clips nothing"


@runs("docs/guides/own-transform.md")
@pytest.mark.thorough
def test_a_transform_of_ones_own_is_installed_and_run_in_every_way(terminal: Terminal) -> None:
    page, example = "docs/guides/own-transform.md", ROOT / "examples" / "own-transform"
    assert blocks(page, "python") == [(example / "signs.py").read_text()]
    assert blocks(page, "toml")[0] in (example / "pyproject.toml").read_text()
    (terminal.folder / "examples").unlink()
    shutil.copytree(example, terminal.folder / "examples" / "own-transform")  # building leaves files there
    install, describe, simulate, run, verify = terminal.commands
    terminal.type(install, {"pip install": UV})
    also = [terminal.environment["PYTHONPATH"]] if "PYTHONPATH" in terminal.environment else []
    terminal.environment["PYTHONPATH"] = os.pathsep.join([str(terminal.folder / "own"), *also])
    rows = [line.split() for line in terminal.type(describe).splitlines()]
    assert [row[3] for row in rows if row[:2] == ["train", "train"]] == ["618"]
    digests = [terminal.type(command).splitlines()[-1] for command in (simulate, run)]
    assert digests[0] == digests[1]
    assert "replayed: " in terminal.type(verify)


def _shorten(folder: Path, fraction: float = 0.1) -> None:
    """Fewer clients and rounds than the guide's, so that its commands take no time."""
    template, job = yaml.safe_load_all((ROOT / "examples" / "research" / "clients.yaml").read_text())
    template["spec"]["count"] = 10
    job["spec"]["training"] |= {"rounds": 1, "localEpochs": 1}
    job["spec"]["participation"]["fraction"] = fraction
    (folder / "examples").unlink()
    (folder / "examples" / "research").mkdir(parents=True)
    (folder / "examples" / "research" / "clients.yaml").write_text(yaml.safe_dump_all([template, job]))


# What the libraries of notebooks warn of is not ours.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = _notebook()
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=os.fspath(tmp_path))
    said = "\n".join(_text(output) for cell in notebook.cells for output in cell.get("outputs", ()))
    assert "did you mean fedavg?" in said and "round 3/3" in said
    assert "learningRate  runs" in said and "±" in said
    assert "256 examples, largest difference" in said
    (code, *_) = [output.data for output in notebook.cells[11].outputs]
    assert "image/svg+xml" in code


def _notebook() -> Any:
    """The notebook as it is kept, without outputs."""
    read: Callable[..., Any] = nbformat.read
    return read(NOTEBOOK, as_version=4)


def _text(output: Any) -> str:
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def test_the_notebook_uses_nothing_but_public_names() -> None:
    notebook = _notebook()
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert set(imported_names(code)) <= {"fedsilo", *(f"fedsilo.{name}" for name in fedsilo.__all__)}
