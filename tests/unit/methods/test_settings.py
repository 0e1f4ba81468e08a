"""Settings out of range are refused by field, before anything runs; and every method trains with BatchNorm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.manifests.faults import ManifestFaults
from fedsilo.methods import registry
from tests.federate import federate, job_spec, model_of, runners, silo_holding

WRONG: list[tuple[str, str, Any]] = [
    ("fedprox", "mu", -0.1),
    ("fedprox", "mu", float("inf")),
    ("fedprox", "variant", "huber"),
    ("clsprox", "mu", float("nan")),
    ("clsnorm", "mu", 1),
    ("scaffold", "serverLearningRate", 0),
    ("scaffold", "variant", "map"),
    ("moon", "mu", -1),
    ("moon", "temperature", 0),
    ("fedlc", "tau", -1),
    ("fedbr", "pseudoData", "raw"),
    ("fedbr", "averaged", 0),
    ("fedbr", "mixed", 0),
    ("fedbr", "pseudoWeight", -1),
    ("fedbr", "contrastWeight", float("nan")),
    ("fedbr", "temperature", 0),
    ("fedbr", "maxStep", 3),
]


@pytest.mark.parametrize(("method", "field", "value"), WRONG)
def test_a_setting_out_of_range_is_refused_with_its_path(method: str, field: str, value: object) -> None:
    with pytest.raises(ManifestFaults, match=rf"spec\.method\.config\.{field}: .*; ") as caught:
        registry.parse(registry.get(method), {field: value})
    assert caught.value.exit_code == 2


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("clsnorm", {}),
    ("clsprox", {}),
    ("fedbr", {"pseudoData": "mixture"}),
    ("fedlc", {}),
    ("fedprox", {}),
    ("fedrs", {}),
    ("moon", {}),
    ("scaffold", {"serverLearningRate": 2}),
    ("scaffold", {"variant": "niid-bench"}),
]


@pytest.mark.parametrize(("method", "config"), METHODS)
def test_batchnorm_goes_through_two_rounds(tmp_path: Path, method: str, config: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    silos = [
        silo_holding(tmp_path, f"s{k}", rng.random((9, 1, 8, 8), np.float32), np.repeat([k, k + 1, k], 3))
        for k in range(2)
    ]
    spec = job_spec(
        method,
        2,
        2,
        method={"config": config},
        model={"name": "resnet8", "config": {"width": 1}},
        data={"inputShape": [1, 8, 8]},
        training={"rounds": 2, "device": "cpu", "batchSize": 4},
    )
    found = model_of(federate(tmp_path / "job", spec, runners(spec, silos, tmp_path)))
    for name, array in found.items():
        assert np.isfinite(array).all(), name
        if name.endswith("running_var"):
            assert (array >= 0).all()
        if name.endswith("num_batches_tracked"):
            assert array.dtype == np.int64
            assert array >= 4
