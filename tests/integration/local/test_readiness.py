"""A job that refuses data with errors ends before round 1 with all faults of all silos, and goes on once mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.local.runs import run, running_processes
from tests.unit.local.test_check import manifest, write, write_datasets

pytestmark = pytest.mark.thorough


def audit(workdir: Path, event: str) -> list[dict[str, Any]]:
    lines = [line for path in workdir.rglob("log.jsonl") for line in path.read_text().splitlines()]
    return [line for line in map(json.loads, lines) if line["event"] == event]


def test_one_message_names_every_fault_and_a_mended_job_goes_on(tmp_path: Path) -> None:
    path, workdir = manifest(tmp_path, check="refuse"), tmp_path / "run"
    write_datasets(tmp_path)
    write(tmp_path, "south", ["plane", "bird", "cat"])
    write(tmp_path, "east", features=np.full((30, 3), np.inf))
    features = np.random.default_rng(1).normal(size=(30, 3))
    features[20:] = features[10]
    write(tmp_path, "west", features=features)
    ended = run(path, workdir)
    document = ended.document
    assert (ended.code, document["phase"], document["reason"]) == (4, "Failed", "DataInvalid"), ended.err
    assert document["message"].startswith(
        "the data are not ready: default/south: SchemaDiffers: class 'plane'"
    )
    assert "default/east: Unreadable: dataset: dataset 'animals': item 0" in document["message"]
    codes = {(found["silo"], found["code"]) for found in document["findings"]}
    assert codes == {
        ("default/south", "SchemaDiffers"),
        ("default/east", "Unreadable"),
        ("default/west", "Duplicates"),
        ("default/west", "ValidationLeaks"),
    }
    assert (document["rounds"], ended.history, list(workdir.rglob("*.update"))) == (0, [], [])
    assert len(audit(workdir, "readiness")) == 4
    assert {line["code"] for line in audit(workdir, "not-accepted")} == {"not-ready"}
    assert "Traceback" not in ended.err

    write_datasets(tmp_path)
    ended = run(path, workdir, "--resume")
    assert (ended.code, ended.document["phase"]) == (0, "Succeeded"), ended.err
    assert len(ended.history[0]["samples"]) == 4
    assert "findings" not in ended.document
    assert running_processes(tmp_path) == {}
