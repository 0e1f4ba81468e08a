"""Settings out of range are refused by field, before anything runs; and every method trains with BatchNorm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.faults import ManifestFaults
from fedsilo.errors import FedsiloError
from fedsilo.methods import registry
from fedsilo.methods.checks import check_training
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding, skewed_silos

WRONG_SETTINGS: list[tuple[str, str, Any]] = [
    ("fedprox", "mu", -0.1),
    ("fedprox", "mu", float("inf")),
    ("fedprox", "variant", "huber"),
    ("clsprox", "mu", float("nan")),
    ("clsnorm", "mu", 1),
    ("scaffold", "serverLearningRate", 0),
    ("scaffold", "variant", "map"),
    ("ditto", "pullWeight", -1),
    ("ditto", "variant", "huber"),
    ("fedproto", "prototypeWeight", -1),
    ("fedproto", "variant", "released"),
    ("local", "mu", 1),
    ("dittors", "pullWeight", float("inf")),
    ("dittors", "alpha", 1.1),
    ("scars", "alpha", -0.1),
    ("scars", "serverLearningRate", 0),
    ("moon", "mu", -1),
    ("moon", "temperature", 0),
    ("fedlc", "tau", -1),
    ("feddf", "ensemble", "losses"),
    ("feddf", "steps", 0),
    ("fedbe", "distribution", "uniform"),
    ("fedbe", "temperature", 0),
    ("ratio-loss", "beta", -1),
    ("fedavgm", "variant", "released"),
    ("fedopt", "optimizer", "adamw"),
    ("fednova", "variant", "map"),
    ("feddyn", "alpha", 0),
    ("fedcm", "alpha", 0),
    ("fedaws", "margin", 1.5),
    ("fedbr", "pseudoData", "raw"),
    ("fedbr", "averaged", 0),
    ("fedbr", "mixed", 0),
    ("fedbr", "pseudoWeight", -1),
    ("fedbr", "contrastWeight", float("nan")),
    ("fedbr", "temperature", 0),
    ("fedbr", "maxStep", 3),
]


@pytest.mark.parametrize(("method", "field", "value"), WRONG_SETTINGS)
def test_a_setting_out_of_range_is_refused_with_its_path(method: str, field: str, value: object) -> None:
    with pytest.raises(ManifestFaults, match=rf"spec\.method\.config\.{field}: .*; ") as caught:
        bound_method(method, config={field: value})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("method", ["scaffold", "scamap", "scars", "ccvr", "fednova", "fedcm"])
def test_what_reckons_with_steps_is_of_sgd(method: str) -> None:
    config = {"after": {"name": "scaffold"}} if method == "ccvr" else {}
    training = {"rounds": 1, "optimizer": {"name": "adamw"}}
    (fault,) = check_training(bound_method(method, config=config, training=training))
    assert fault[:2] == ("spec.training.optimizer.name", "adamw") and fault[3] == "use sgd"
    assert check_training(bound_method(method, config=config)) == []
    assert check_training(bound_method("fedavg", training=training)) == []


def test_float16_is_none_of_a_loss_with_an_adversary() -> None:
    (fault,) = check_training(bound_method("fedbr", training={"rounds": 1, "precision": "float16"}))
    assert fault[:2] == ("spec.training.precision", "float16") and fault[3] == "use bfloat16 or float32"
    after = bound_method(
        "ccvr", config={"after": {"name": "fedbr"}}, training={"rounds": 1, "precision": "float16"}
    )
    assert check_training(after) == [fault]
    assert check_training(bound_method("fedbr", training={"rounds": 1, "precision": "bfloat16"})) == []
    assert check_training(bound_method("scaffold", training={"rounds": 1, "precision": "float16"})) == []


def numbers() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Method, field and JSON schema of every number in a method's configuration."""
    for name in registry.names():
        for field, schema in registry.get(name).Config.model_json_schema()["properties"].items():
            kinds = [
                kind for kind in schema.get("anyOf", [schema]) if kind.get("type") in ("number", "integer")
            ]
            yield from ((name, field, kind) for kind in kinds)


@pytest.mark.parametrize(("method", "field", "schema"), list(numbers()))
def test_every_number_has_a_range_and_what_lies_outside_is_refused(
    method: str, field: str, schema: Mapping[str, Any]
) -> None:
    lowest = schema.get("minimum", schema.get("exclusiveMinimum"))
    assert lowest is not None, "a setting without a lower bound"
    below = lowest if "exclusiveMinimum" in schema else lowest - 1
    above = [schema["maximum"] + 1] if "maximum" in schema else []
    for value in (below, *above, float("nan"), float("inf"), -float("inf"), "many", [1]):
        with pytest.raises(ManifestFaults, match=rf"spec\.method\.config\.{field}: .*; "):
            bound_method(method, config={field: value})


DIVERGING: list[tuple[str, dict[str, Any], str]] = [
    ("moon", {"mu": 1e30}, "silo silos/a: evaluation: loss .*: the model has diverged; lower "),
    ("fedbr", {"pseudoWeight": 1e30}, "silo silos/a: .* diverged.*; lower "),
    ("feddecorr", {"beta": 1e30}, "silo silos/a: .* diverged.*; lower "),
    ("dann", {"reversal": 1e30}, "silo silos/[ab]: .* diverged.*; lower "),
    ("vhl", {"virtualWeight": 1e30}, "silo silos/a: .* diverged.*; lower "),
    ("feddf", {"learningRate": 1e30, "steps": 5}, "distillation: has diverged; lower "),
    ("fedbe", {"learningRate": 1e30, "epochs": 5}, "distillation: has diverged; lower "),
    ("creff", {"featureLearningRate": 1e30, "matchSteps": 3}, "the aggregator's head: tensor 'classifier"),
]


@pytest.mark.parametrize(("method", "config", "said"), DIVERGING)
def test_settings_with_which_training_diverges_fail_the_job_and_leave_no_nan_behind(
    tmp_path: Path, method: str, config: dict[str, Any], said: str
) -> None:
    classes = {"a": [0, 1], "b": [1, 2]}
    sections = {"data": {"validationFraction": 0.25}, "evaluation": {"every": 1}}
    spec = job_spec(method, list(classes), 3, method={"config": config}, **sections)
    with pytest.raises(FedsiloError, match=said) as failed:
        federate(tmp_path, spec, runners(spec, skewed_silos(tmp_path, classes), tmp_path))
    assert failed.value.reason == "MethodError"
    history = tmp_path / "aggregator" / "history.jsonl"
    assert not history.exists() or "NaN" not in history.read_text()


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("fedavgm", {}),
    ("fedaws", {}),
    ("fedcm", {}),
    ("feddyn", {"variant": "released"}),
    ("fednova", {"mu": 0.1, "serverMomentum": 0.5}),
    ("fedopt", {"optimizer": "yogi"}),
    ("clsnorm", {}),
    ("clsprox", {}),
    ("dann", {}),
    ("fedbr", {"pseudoData": "mixture"}),
    ("feddecorr", {}),
    ("fedlc", {}),
    ("feddf", {"steps": 3}),
    ("fedbe", {"samples": 2, "epochs": 2}),
    ("ratio-loss", {}),
    ("fedmix", {}),
    ("fedmmd", {}),
    ("fedprox", {}),
    ("fedrs", {}),
    ("groupdro", {"variant": "released"}),
    ("moon", {}),
    ("scaffold", {"serverLearningRate": 2}),
    ("scaffold", {"variant": "niid-bench"}),
    ("vhl", {}),
]


WITH_STATISTICS = {"scaffold", "fednova", "vhl"}
"""Methods whose halves handle running statistics in a way of their own, or that add examples to a batch."""


@pytest.mark.parametrize(
    ("method", "config"),
    [
        pytest.param(method, config, marks=[] if method in WITH_STATISTICS else [pytest.mark.thorough])
        for method, config in METHODS
    ],
)
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
