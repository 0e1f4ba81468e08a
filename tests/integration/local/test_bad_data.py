"""What a person or an institution got wrong is said at once, with the names that are needed to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.cli.main import main
from fedsilo.errors import SEE_LOG
from tests.integration.local.manifest import silo, silos, write
from tests.integration.local.runs import run, running_processes


def _npz(directory: Path, labels: np.ndarray | None = None) -> dict[str, Any]:
    images = np.random.default_rng(0).random((40, 8, 8))
    labels = np.arange(40) % 10 if labels is None else labels
    np.savez(directory / "digits.npz", images=images, labels=labels)
    return {"loader": "npz", "config": {"path": "digits.npz"}}


def _missing_file(_: Path) -> dict[str, Any]:
    return {"loader": "npz", "config": {"path": "nowhere/digits.npz"}}


def _label_out_of_range(directory: Path) -> dict[str, Any]:
    labels = np.arange(40) % 10
    labels[12] = 10
    return _npz(directory, labels=labels)


def test_a_silos_data(tmp_path: Path) -> None:
    """One way of many; `tests/unit/data/test_bad_data.py` has the others."""
    manifest = write(tmp_path / "digits.yaml", [silo("north", _label_out_of_range(tmp_path))])
    ended = run(manifest, tmp_path / "run")
    document = ended.document
    assert (ended.code, document["phase"], document["reason"]) == (4, "Failed", "DataInvalid")
    assert document["message"].startswith("silo silo-north/north: ")
    assert "'digits'" in document["message"]
    assert f"item 12: label {SEE_LOG} is not a class of the job (data.classes is 10)" in document["message"]
    logs = "".join(path.read_text() for path in (tmp_path / "run").rglob("*.log"))
    assert "item 12: label 10 is not a class of the job" in logs
    assert len(document["message"].splitlines()) == 1
    assert (document["model"], document["rounds"]) == (None, 0)
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert running_processes(tmp_path) == {}


@pytest.mark.thorough
def test_data_that_were_mended_let_the_run_go_on(tmp_path: Path) -> None:
    members = [silo("north", _missing_file(tmp_path)), *silos("east")]
    manifest = write(tmp_path / "digits.yaml", members, training={"rounds": 1})
    assert run(manifest, tmp_path / "run").code == 4
    (tmp_path / "nowhere").mkdir()
    _npz(tmp_path / "nowhere")
    ended = run(manifest, tmp_path / "run", "--resume")
    assert (ended.code, ended.document["phase"]) == (0, "Succeeded"), ended.err
    assert ended.history[0]["failed"] == {}


def test_the_aggregators_test_set(tmp_path: Path) -> None:
    test = {"name": "test", **_missing_file(tmp_path)}
    manifest = write(tmp_path / "digits.yaml", silos("north"), aggregator={"datasets": [test]})
    ended = run(manifest, tmp_path / "run")
    assert (ended.code, ended.document["reason"]) == (3, "DataInvalid")
    assert "nowhere/digits.npz" in ended.document["message"]
    assert running_processes(tmp_path) == {}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"method": {"name": "fedavgg"}},
            'spec.method.name: "fedavgg": is not a known method; did you mean fedavg?',
        ),
        ({"training": {"rounds": 0}}, "spec.training.rounds: 0: "),
        (
            {"model": {"name": "lenet", "config": {}}},
            "spec.data.inputShape: [1, 8, 8]: is too small for lenet",
        ),
        ({"participation": {"minSilos": 2}}, "spec.participation.minSilos: 2: "),
    ],
)
def test_a_manifest(
    spec: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write(tmp_path / "digits.yaml", silos("north"), **spec)
    code = main(["run", "-f", str(manifest), "--workdir", str(tmp_path / "run"), "--json"])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert message in said.err
    assert all(line.startswith("fedsilo: ") for line in said.err.splitlines())
    assert list(tmp_path.iterdir()) == [manifest]


def test_no_manifest(tmp_path: Path) -> None:
    ended = run(tmp_path / "nothing.yaml", tmp_path / "run")
    assert (ended.code, ended.out) == (2, "")
    assert "nothing.yaml" in ended.err
    assert list(tmp_path.iterdir()) == []
