"""Digits that the aggregator holds and no silo has, for methods that learn from them there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.api.loading import JobManifest
from fedsilo.engine.context import JobContext
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.errors import DataInvalid
from fedsilo.methods import registry
from fedsilo.methods.interface import PREPROCESSING
from fedsilo.methods.state import State
from fedsilo.simulation.simulate import simulate
from fedsilo.transforms.preprocessing.aggregator import PreprocessingAggregatorSide
from fedsilo.validation import registry_faults
from tests.federate import references
from tests.integration.local.manifest import DIGITS, silo
from tests.unit.simulation.digits import manifest_of
from tests.unit.simulation.test_same_bytes import run_both

CONFIGS: dict[str, dict[str, Any]] = {
    "feddf": {"steps": 20},
    "fedbe": {"samples": 2, "epochs": 1, "averageAfter": 3, "averageEvery": 1},
    "ratio-loss": {},
}
TRAIN = {"split": "train"}


def part(index: int) -> dict[str, Any]:
    """A quarter of the digits for training."""
    return {"config": TRAIN, "partition": {"scheme": "iid", "silos": 4, "index": index}}


def at_aggregator(**public: Any) -> dict[str, Any]:
    """The sections that name the last quarter as public examples, beside the test set."""
    test = {"name": "test", "loader": DIGITS, "config": {"split": "test"}}
    held = {"name": "public", "loader": DIGITS, **part(3)} | public
    return {"aggregation": {"publicDataset": "public"}, "aggregator": {"datasets": [test, held]}}


def manifest(method: str, **more: Any) -> JobManifest:
    """Three silos with a quarter each."""
    silos = [silo(f"s{index}", part(index)) for index in range(3)]
    return manifest_of(silos, method={"name": method, "config": CONFIGS[method]}, **at_aggregator() | more)


@pytest.mark.parametrize("method", CONFIGS)
def test_a_job_with_public_digits(tmp_path: Path, method: str) -> None:
    found = manifest(method)
    assert registry_faults(found) == []
    last = simulate(found, tmp_path, tmp_path / "job").history()[-1]
    assert np.isfinite(last["metrics"]["loss"])


def test_raw_public_values_are_preprocessed_as_the_silos_are(tmp_path: Path) -> None:
    sections = {"data": {"preprocessing": {"standardise": True}}, **at_aggregator()}
    run_both(tmp_path, 3, method={"name": "feddf", "config": CONFIGS["feddf"]}, **sections)


def test_public_data_that_cannot_be_read_end_the_job_by_name(tmp_path: Path) -> None:
    held = at_aggregator(loader="npz", config={"path": "nowhere.npz"}, partition=None)
    with pytest.raises(DataInvalid, match=r"dataset 'public': .*nowhere\.npz"):
        simulate(manifest("feddf", **held), tmp_path, tmp_path / "job")


def test_networks_at_the_aggregator_preprocess_too(tmp_path: Path) -> None:
    found = manifest("feddf", model={"name": "mlp", "config": {"hidden": [4]}}).job.spec
    method = registry.bind(found)
    job = JobContext.of(method, references(found), public=PublicDataset.of(method, tmp_path))
    tree = job.initial_model()
    images, labels = job.public_examples().batch(torch.arange(2))
    assert labels.tolist() == [0, 0]  # what is not read is not there
    numbers = {"fill": np.zeros(1), "mean": np.full(1, 0.5), "scale": np.full(1, 0.25)}
    wanted = job.module(tree)((images - 0.5) / 0.25)
    prepared = partial(
        PreprocessingAggregatorSide(found).network,
        State({PREPROCESSING: numbers}),
    )
    assert torch.allclose(replace(job, prepared=prepared).module(tree)(images), wanted, atol=1e-6)
