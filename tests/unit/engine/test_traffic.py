"""`fedsilo methods NAME -f FILE` counts the bytes that a real job then moves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedsilo.cli.main import main
from fedsilo.engine.traffic import TrafficEstimate, estimate_traffic
from fedsilo.methods import registry
from fedsilo.wire import open_task
from tests.federate import TASK_KEY, job_spec, local_silos, open_engine, references, runners, silo_holding

JOBS: list[tuple[str, int, dict[str, Any]]] = [
    ("fedavg", 3, {}),
    ("fedconcat", 6, {"clusters": 2, "encoderRounds": 3, "classifierRounds": 3}),
    ("fedconcat-id", 6, {"clusters": 2, "encoderRounds": 3, "classifierRounds": 3, "variant": "released"}),
    ("ccvr", 3, {"covariance": "diagonal"}),
    ("scaffold", 3, {}),
    ("moon", 3, {}),
    ("fedbr", 3, {"pseudoData": "mixture"}),
    ("creff", 3, {"featuresPerClass": 3, "matchSteps": 2, "retrain": 2, "variant": "released"}),
]


QUICK_METHODS = {"fedconcat", "scaffold"}


def moved_bytes(tmp_path: Path, spec: Any) -> tuple[list[int], list[int]]:
    """Bytes up and down of one silo in a whole job over in-process silos that hold all classes."""
    labels = np.tile(np.arange(4), 6)
    rng = np.random.default_rng(0)
    parts: Sequence[np.ndarray] = [labels, np.concatenate([labels, labels[:2]])]
    silos = [
        silo_holding(tmp_path, f"s{n}", rng.normal(size=(len(part), 6)).astype(np.float32), part)
        for n, part in enumerate(parts)
    ]
    engine = open_engine(tmp_path / "aggregator", spec)
    answering = local_silos(tmp_path, runners(spec, silos, tmp_path))
    up: list[int] = []
    down: list[int] = []
    held: set[str] = set()
    while not engine.ended:
        task = engine.task("silos/s0")
        assert task is not None
        blobs = {b.digest: b.length for b in open_task(task.sealed, TASK_KEY.verify_key).blobs}
        up.append(task.contract.max_bytes())
        down.append(sum(length for digest, length in blobs.items() if digest not in held))
        held = set(blobs)
        for silo in answering:
            silo.answer(engine)
        engine.settle()
    assert engine.failure is None
    return up, down


@pytest.mark.parametrize(
    ("method", "rounds", "config"),
    [
        pytest.param(*job, id=job[0], marks=[] if job[0] in QUICK_METHODS else [pytest.mark.thorough])
        for job in JOBS
    ],
)
def test_the_estimate_counts_what_a_real_job_moves(
    tmp_path: Path, method: str, rounds: int, config: dict[str, Any]
) -> None:
    spec = job_spec(method, 2, rounds, method={"config": config}, evaluation={"every": 2})
    estimate: TrafficEstimate = estimate_traffic(registry.bind(spec), references(spec))
    up, down = moved_bytes(tmp_path, spec)
    assert estimate.up == sum(up)
    # A task after an evaluation finds nothing that it needs; what a phase hands over to the next may be kept.
    assert sum(down) <= estimate.down <= sum(down) + down[0]
    assert sum(one.rounds for one in estimate.phases) == len(up)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    silo = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": "silos", "name": "s0"},
        "spec": {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]},
    }
    job = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"namespace": "federation", "name": "digits"},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": "mlp", "config": {"hidden": [5]}},
            "data": {"dataset": "digits", "classes": 10, "inputShape": [1, 8, 8]},
            "training": {"rounds": 4},
            "silos": {"refs": [{"namespace": "silos", "name": "s0"}]},
            "evaluation": {"every": 4},
        },
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump_all([silo, job]))
    return path


def test_the_bytes_of_a_manifest_are_printed(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "fedavg", "-f", str(manifest)]) == 0
    shown = capsys.readouterr().out.partition("in job ")[2]
    parameters = 64 * 5 + 5 + 5 * 10 + 10
    assert f"  model: {parameters} numbers in 4 tensors, {4 * parameters:,} bytes\n" in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.startswith("  ")}
    assert rows["train"][:3] == ["train", "4", f"{4 * parameters:,}"]
    assert rows["evaluate"][:3] == ["evaluate", "1", "0"]
    assert f"  whole job {16 * parameters:,} " in re.sub(r" +", " ", shown).replace("\n ", "\n  ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["creff"], "spec.method.name is fedavg, not creff"), ([], "needs the name of its job's method")],
)
def test_a_file_of_another_method_is_refused(
    manifest: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["methods", *arguments, "-f", str(manifest)]) == 2
    assert message in capsys.readouterr().err
