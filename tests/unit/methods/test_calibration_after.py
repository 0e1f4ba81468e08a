"""Calibration after each method that yields one model, by configuration alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.methods import registry
from fedsilo.methods.method import averaging_of
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.tiers import mark_thorough

BASE_METHODS = [
    "dann",
    "feddecorr",
    "fedmix",
    "groupdro",
    "mixup",
    "vhl",
    "clsnorm",
    "clsprox",
    "fedbr",
    "fedlc",
    "fedprox",
    "fedrs",
    "moon",
    "scaffold",
]


@pytest.mark.parametrize("name", mark_thorough(BASE_METHODS, {"scaffold", "dann"}))
def test_ccvr_follows(tmp_path: Path, name: str) -> None:
    classes_of = {"a": [0, 1], "b": [1, 2]}
    config, weights = {"after": {"name": name}}, averaging_of(bound_method(name))
    spec = job_spec("ccvr", list(classes_of), 2, method={"config": config}, aggregation={"weights": weights})
    assert registry.bind(spec).check() == []
    engine = federate(tmp_path, spec, runners(spec, skewed_silos(tmp_path, classes_of), tmp_path))
    assert [line["phase"] for line in engine.history()] == ["train", "train", "calibration"]
    trained, found = engine.state.tree("model"), model_of(engine)
    for tensor, array in trained.items():
        assert np.array_equal(array, found[tensor]) == tensor.startswith("encoder."), tensor


@pytest.mark.parametrize(
    ("name", "variant", "uniform"),
    [
        ("fedbr", "paper", True),
        ("scaffold", "paper", True),
        ("scaffold", "niid-bench", False),
        ("fedprox", "released", True),
        ("map", "released", False),
    ],
)
def test_a_uniform_mean_before_it_has_to_be_written(name: str, variant: str, uniform: bool) -> None:
    """CCVR's own rule is by samples; which one holds for the whole job is said, not guessed."""
    config = {"after": {"name": name, "config": {"variant": variant}}}
    faults = bound_method("ccvr", config=config).check()
    wanted = [("spec.aggregation.weights", "write uniform here")] if uniform else []
    assert [(fault[0], fault[3]) for fault in faults] == wanted
