"""Silos trained at once: equal to those trained one at a time up to rounding, whatever their sizes and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.simulation.execution import SEQUENTIAL_PLAN, ExecutionPlan
from fedsilo.simulation.simulate import simulate
from fedsilo.wire import open_blob
from tests.unit.methods.forms import CLUSTER_CONFIG
from tests.unit.simulation.digits import manifest_of, sharing

TOLERANCE = 1e-5
"""Largest difference of a weight after a round or two; from round to round rounding grows, as between two machines."""


def weights(directory: Path, execution: ExecutionPlan, **spec: Any) -> dict[str, np.ndarray]:
    """The model of a job whose silos have parts of very different sizes."""
    manifest = manifest_of(sharing(5), **({"training": {"rounds": 2}} | spec))
    done = simulate(manifest, directory, directory / f"{execution}", execution)
    assert done.result is not None
    return open_blob(done.result.path).tree()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {
            "model": {"name": "lenet", "config": {"padding": 2}},
            "training": {"rounds": 1, "optimizer": {"learningRate": 0.02}},
        },
        {"training": {"rounds": 1, "localEpochs": 2, "gradientClip": 0.2, "minSteps": 30}},
        {
            "training": {
                "rounds": 2,
                "optimizer": {"momentum": 0.9, "weightDecay": 0.01, "learningRate": 0.05},
            }
        },
        {
            "training": {
                "rounds": 2,
                "optimizer": {"name": "adamw", "eps": 1e-3, "learningRate": 0.01, "state": "keep"},
            }
        },
        {"method": {"name": "fedconcat", "config": CLUSTER_CONFIG}},
        {"method": {"name": "ccvr"}},
    ],
    ids=[
        "plain",
        "convolutions",
        "epochs, clipping and least steps",
        "momentum and decay",
        "kept moments",
        "clusters",
        "then",
    ],
)
def test_a_batch_of_silos_learns_what_each_would(tmp_path: Path, spec: dict[str, Any]) -> None:
    one_by_one, batched = (
        weights(tmp_path, execution, **spec) for execution in (SEQUENTIAL_PLAN, ExecutionPlan(batch=3))
    )
    assert one_by_one.keys() == batched.keys()
    for name in one_by_one:
        assert np.abs(one_by_one[name] - batched[name]).max() <= TOLERANCE, name


@pytest.mark.parametrize(
    ("spec", "execution", "error", "said"),
    [
        (
            {"method": {"name": "scaffold"}},
            ExecutionPlan(batch=2),
            ManifestInvalid,
            "trains one silo at a time",
        ),
        (
            {"training": {"rounds": 1, "precision": "float16"}},
            ExecutionPlan(batch=2),
            ManifestInvalid,
            "'float16': scales the loss of each silo by itself; use bfloat16",
        ),
        (
            {"model": {"name": "resnet8", "config": {"width": 2}}},
            ExecutionPlan(batch=2),
            MethodError,
            "has BatchNorm",
        ),
        ({}, ExecutionPlan(batch=2, workers=2), ManifestInvalid, "exclude each other"),
    ],
)
def test_what_cannot_be_batched_reports_it(
    tmp_path: Path, spec: dict[str, Any], execution: ExecutionPlan, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        simulate(manifest_of(sharing(2), **spec), tmp_path, tmp_path, execution)


def test_the_silo_whose_fault_it_is_fails(tmp_path: Path) -> None:
    silos = sharing(3)
    silos[1]["spec"]["policy"]["maxRounds"] = 1
    job = manifest_of(silos, participation={"minSilos": 1})
    done = simulate(job, tmp_path, tmp_path, ExecutionPlan(batch=3))
    assert [list(line["failed"]) for line in done.history()] == [["silo-s1/s1"]] * 2
    assert all(len(line["samples"]) == 2 for line in done.history())
