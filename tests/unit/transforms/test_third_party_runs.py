"""Jobs with transforms of other packages beside other features, in memory and through signed updates alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import FedsiloError
from fedsilo.simulation.simulate import simulate
from fedsilo.wire import open_blob
from tests.unit.simulation import test_same_bytes
from tests.unit.simulation.digits import manifest_of, sharing
from tests.unit.simulation.test_same_bytes import known_secrets, run_both  # noqa: F401 (a fixture)
from tests.unit.transforms.offered import Halves, offer

CONVOLUTIONS = {"name": "resnet8", "config": {"width": 2}}


@pytest.fixture(autouse=True)
def offered_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)
    permitted = lambda count: sharing(count, transforms=["halves", "damped", "keeping", "for-more"])  # noqa: E731
    monkeypatch.setattr(test_same_bytes, "sharing", permitted)


JOBS: dict[str, dict[str, Any]] = {
    "alone": {"transforms": ["halves"]},
    "one after another": {"transforms": ["damped", "halves"]},
    "with what silos keep": {"transforms": ["keeping"]},
    "a lossy broadcast": {"transforms": ["halves"], "communication": {"download": {"encoding": "int8"}}},
    "a compressed broadcast": {
        "transforms": ["halves"],
        "communication": {"download": {"compression": "zstd"}},
    },
    "statistics of batches, and parts of a model": {
        "transforms": ["halves"],
        "model": CONVOLUTIONS | {"parameters": {"local": ["*running_*", "*.num_batches_tracked"]}},
        "evaluation": {"testDataset": None},
        "data": {"validationFraction": 0.2},
    },
    "statistics of batches that are shared": {"transforms": ["keeping"], "model": CONVOLUTIONS},
    "a method with states of its own": {"transforms": ["halves"], "method": {"name": "feddyn"}},
    "a method that silos have models of their own of": {
        "transforms": ["keeping"],
        "method": {"name": "ditto"},
    },
    "scores of silos, and samples of them": {
        "transforms": ["keeping"],
        "evaluation": {"testDataset": None},
        "data": {"validationFraction": 0.2},
        "participation": {"fraction": 0.5},
    },
    "a rule": {
        "transforms": ["for-more"],
        "aggregation": {"rule": {"name": "median"}},
    },
    "noise of training": {
        "transforms": ["for-more"],
        "training": {"rounds": 2, "batchSize": 8},
        "privacy": {
            "differentialPrivacy": {"unit": "example", "noiseMultiplier": 1, "delta": 0.001, "maxGradNorm": 1}
        },
    },
}


def small_job(job: Mapping[str, Any]) -> dict[str, Any]:
    named = [{"name": name} for name in job["transforms"]]
    return {"training": {"rounds": 2}, **job, "transforms": named}


QUICK_JOBS = {"one after another", "with what silos keep", "noise of training"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_JOBS else [pytest.mark.thorough]) for name in JOBS]
)
def test_a_job_gives_the_same_bytes_both_ways(name: str, tmp_path: Path) -> None:
    run_both(tmp_path, 3, **small_job(JOBS[name]))


def test_a_model_that_comes_of_them_differs_by_rounding_alone(tmp_path: Path) -> None:
    def trained_model(name: str, **spec: Any) -> Mapping[str, np.ndarray]:
        permitted = sharing(3, transforms=["halves"])
        found = simulate(manifest_of(permitted, training={"rounds": 2}, **spec), tmp_path, tmp_path / name)
        assert found.result is not None
        return open_blob(found.result.path).tree()

    plain, halves = trained_model("plain"), trained_model("halves", transforms=[{"name": "halves"}])
    assert plain.keys() == halves.keys()
    assert any((plain[name] != halves[name]).any() for name in plain)
    assert all(np.abs(plain[name] - halves[name]).max() < 1e-3 for name in plain)


def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **changes: Any) -> str:
    """What a job ends with in which the transform does something else."""
    for verb, code in changes.items():
        monkeypatch.setattr(Halves, verb, code)
    permitted = sharing(2, transforms=["halves"])
    manifest = manifest_of(permitted, transforms=[{"name": "halves"}], training={"rounds": 1})
    try:
        failure = simulate(manifest, tmp_path, tmp_path / "failing").failure
    except FedsiloError as error:
        failure = error
    return str(failure)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (lambda *_: None, "transform halves: encode returned no pair of what is sent and what is kept"),
        (lambda *_: ({}, {}), "transform halves: encode returned no array "),
        (lambda _, model, base, kept: (dict(model), {}), "as float32 of shape"),
        (
            lambda _, model, base, kept: (
                {**{k: np.float16(v) for k, v in model.items()}, "x": np.ones(1)},
                {},
            ),
            "encode returned 'x', which it does not say; leave it out",
        ),
        (lambda _, model, base, kept: base["encoder.weight"].fill(0), "transform halves: encode failed: "),
    ],
)
def test_what_a_transform_encodes_is_held_to_what_it_says(
    code: Any, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert said in failing(monkeypatch, tmp_path, encode=code)


def test_an_update_of_which_no_model_comes_is_its_silos_own_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = failing(monkeypatch, tmp_path, decode=lambda _, sent, base: {})
    assert "the trainer's reply breaks the contract: " in said
    assert "malformed: transform halves: decode returned no array" in said
