"""The model of `fedsilo run --in-process` is that of separate processes, and the command says where it cannot do the
same."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fedsilo.errors import ManifestInvalid, WorkdirConflict
from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import end, run, start, wait_until


@pytest.mark.thorough
def test_the_model_is_that_of_separate_processes(tmp_path: Path) -> None:
    manifest = write(
        tmp_path / "job.yaml",
        silos("north", "south"),
        # A network whose sums depend on the number of threads, which processes set after they were forked.
        model={"name": "mlp", "config": {"hidden": [512]}},
        training={"threads": 2, "batchSize": 256},
        participation={"minSilos": 2},
        output={"tensorboard": True},
    )
    processes = run(manifest, tmp_path / "processes")
    one_process = run(manifest, tmp_path / "one_process", "--in-process", "--workers", "2")
    assert (processes.code, one_process.code) == (0, 0), one_process.err
    assert one_process.document["model"]["sha256"] == processes.document["model"]["sha256"]
    for name in (
        "model.safetensors",
        "model.json",
        "MODEL_CARD.md",
        "history.jsonl",
        "curves.tfevents",
        "aggregator/status.json",
    ):
        assert (one_process.workdir / name).exists() and (processes.workdir / name).exists(), name
    assert one_process.document.keys() == processes.document.keys()
    for field in ("phase", "method", "rounds", "metrics", "silos"):
        assert one_process.document[field] == processes.document[field]
    statuses = [
        json.loads((ended.workdir / "aggregator/status.json").read_text())
        for ended in (one_process, processes)
    ]
    assert statuses[0].keys() == statuses[1].keys()
    assert "round 2/2" in one_process.err


def test_what_was_interrupted_cannot_be_resumed_and_reports_it(tmp_path: Path) -> None:
    manifest = write(tmp_path / "job.yaml", silos("north"), training={"rounds": 10_000})
    workdir = tmp_path / "run"
    process = start(manifest, workdir, "--in-process")
    wait_until(lambda: (workdir / "aggregator" / "history.jsonl").exists(), "the first round")
    process.send_signal(signal.SIGINT)
    ended = end(process, workdir)
    assert ended.code == 128 + signal.SIGINT
    assert ended.err.splitlines()[-1] == "fedsilo: interrupted; a run in one process cannot be resumed"
    again = run(manifest, workdir, "--resume")
    assert again.code == WorkdirConflict.exit_code
    assert "cannot be resumed; name another directory" in again.err
    both = run(manifest, workdir, "--resume", "--in-process")
    assert both.code == ManifestInvalid.exit_code


def test_a_failed_job_ends_as_it_does_in_processes(tmp_path: Path) -> None:
    members = silos("north", "south")
    members[0]["spec"]["policy"] = {"maxRounds": 1}
    failed = run(write(tmp_path / "job.yaml", members), tmp_path / "run", "--in-process")
    assert failed.code == 4
    assert failed.document["reason"] == "QuorumLost"
    assert "silo north: policy.maxRounds is 1" in failed.document["message"]
    status = json.loads((failed.workdir / "aggregator" / "status.json").read_text())
    assert status["phase"] == "Failed"
