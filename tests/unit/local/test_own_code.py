"""A module in the current directory is found by every command that reads data, builds models or trains."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fedsilo.cli.main import main
from tests.paths import ROOT
from tests.unit.learning.test_devices import restored_settings

__all__ = ["restored_settings"]

OWN_MODULE = "python:own_code"


def write_job(folder: Path) -> None:
    """A job whose data, model, training and metric are its own, and their module."""
    shutil.copy(ROOT / "tests/unit/local/own_code.py", folder / "own_code.py")
    silo = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"name": "north", "namespace": "silo-north"},
        "spec": {"datasets": [{"name": "own", "loader": f"{OWN_MODULE}:load", "config": {"seed": 1}}]},
    }
    job = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"name": "own", "namespace": "federation"},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": f"{OWN_MODULE}:Network"},
            "data": {"dataset": "own", "classes": 2, "inputShape": [3]},
            "training": {"rounds": 1, "device": "cpu", "trainer": f"{OWN_MODULE}:train"},
            "evaluation": {"testDataset": "test", "metrics": ["accuracy", f"{OWN_MODULE}:SeenMetric"]},
            "aggregator": {"datasets": [{"name": "test", "loader": f"{OWN_MODULE}:load"}]},
            "silos": {"refs": [{"namespace": "silo-north", "name": "north"}]},
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump_all([silo, job]))


@pytest.fixture
def working_directory(
    tmp_path: Path, restored_settings: Iterator[None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The current directory, on no path of Python's, with job and module."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    write_job(tmp_path)
    yield tmp_path
    sys.modules.pop("own_code", None)


ALLOW = ["--allow-import", "own_code"]
RUN = ["run", "-f", "job.yaml", "--in-process", "--workdir", "run"]
LATER_COMMANDS = {
    "evaluate": ["evaluate", "--model", "run/model.safetensors", "-f", "job.yaml", *ALLOW],
    "export": [
        "export",
        "--model",
        "run/model.safetensors",
        "-f",
        "job.yaml",
        "--torchscript",
        "model.pt",
        *ALLOW,
    ],
}
COMMANDS = {
    "validate": ["validate", "-f", "job.yaml"],
    "check": ["check", "-f", "job.yaml", *ALLOW],
    "run": RUN,
    "sweep": ["sweep", "-f", "job.yaml", "--seeds", "1", "--workdir", "sweep"],
    **LATER_COMMANDS,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_finds_it(
    command: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command in LATER_COMMANDS:
        assert main(RUN) == 0
        sys.modules.pop("own_code")
        sys.path.remove(str(working_directory))
    assert main(COMMANDS[command]) == 0, capsys.readouterr().err
    assert ("own_code" in sys.modules) == (command != "validate")
    if command == "validate":
        assert (
            f"  python  {OWN_MODULE}:Network in {working_directory / 'own_code.py'}"
            in capsys.readouterr().out.splitlines()
        )
    if command == "run":
        assert (
            json.loads((working_directory / "run/history.jsonl").read_text())["metrics"]["SeenMetric"] == 40
        )


def test_what_is_not_here_is_said_and_does_not_make_a_manifest_wrong(
    working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (working_directory / "own_code.py").unlink()
    assert main(COMMANDS["validate"]) == 0
    said = capsys.readouterr().out
    assert f"  python  {OWN_MODULE}:train: not found here; install its package where the job runs" in said
    assert main(COMMANDS["check"]) == 3
    assert f"{working_directory}" in capsys.readouterr().out
