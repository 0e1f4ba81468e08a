"""Silos trained at once: equal to those trained one at a time up to rounding, whatever their sizes and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.simulation.execution import ALONE, Execution
from fedsilo.simulation.opening import simulate
from fedsilo.wire import open_blob
from tests.unit.methods.forms import CLUSTERED
from tests.unit.simulation.digits import federation, sharing

TOLERANCE = 1e-5
"""Largest difference of a weight after a round or two; from round to round rounding grows, as between two machines."""


def weights(directory: Path, means: Execution, **spec: Any) -> dict[str, np.ndarray]:
    """The model of a job whose silos have parts of very different sizes."""
    members = federation(sharing(5), **({"training": {"rounds": 2}} | spec))
    done = simulate(members, directory, directory / f"{means}", means)
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
        {"method": {"name": "fedconcat", "config": CLUSTERED}},
        {"method": {"name": "ccvr"}},
    ],
    ids=[
        "plain",
        "convolutions",
        "epochs, clipping and least steps",
        "momentum and decay",
        "clusters",
        "then",
    ],
)
def test_a_batch_of_silos_learns_what_each_would(tmp_path: Path, spec: dict[str, Any]) -> None:
    alone, batched = (weights(tmp_path, means, **spec) for means in (ALONE, Execution(batch=3)))
    assert alone.keys() == batched.keys()
    for name in alone:
        assert np.abs(alone[name] - batched[name]).max() <= TOLERANCE, name


@pytest.mark.parametrize(
    ("spec", "means", "error", "said"),
    [
        ({"method": {"name": "scaffold"}}, Execution(batch=2), ManifestInvalid, "trains one silo at a time"),
        (
            {"model": {"name": "resnet8", "config": {"width": 2}}},
            Execution(batch=2),
            MethodError,
            "has BatchNorm",
        ),
        ({}, Execution(batch=2, workers=2), ManifestInvalid, "exclude each other"),
    ],
)
def test_what_cannot_be_batched_says_so(
    tmp_path: Path, spec: dict[str, Any], means: Execution, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        simulate(federation(sharing(2), **spec), tmp_path, tmp_path, means)


def test_the_silo_whose_fault_it_is_fails(tmp_path: Path) -> None:
    members = sharing(3)
    members[1]["spec"]["policy"]["maxRounds"] = 1
    job = federation(members, participation={"minSilos": 1})
    done = simulate(job, tmp_path, tmp_path, Execution(batch=3))
    assert [list(line["failed"]) for line in done.history()] == [["silo-s1/s1"]] * 2
    assert all(len(line["samples"]) == 2 for line in done.history())
