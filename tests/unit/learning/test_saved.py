from __future__ import annotations

import hashlib
import json
import resource
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import fedsilo
from fedsilo.errors import ImportNotAllowed, ManifestInvalid, MethodError
from fedsilo.learning.models import Model, build_model, to_tree
from tests.unit.learning.specs import data_spec, model_spec


@pytest.fixture
def saved_model(tmp_path: Path) -> Path:
    """A model as the aggregator leaves it, its tensors written by the safetensors library."""
    model = build_model(model_spec("lenet", padding=2), data_spec(1, 8, 8), seed=7)
    path = tmp_path / "model.safetensors"
    save_file(to_tree(model), path)
    describe(path)
    return path


def describe(path: Path, **changes: Any) -> None:
    description = {
        "model": {"name": "lenet", "config": {"padding": 2}},
        "data": {"inputShape": [1, 8, 8], "classes": 10},
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "job": "federation/digits",
        **changes,
    }
    path.with_name("model.json").write_text(
        json.dumps({k: v for k, v in description.items() if v is not None})
    )


def test_the_model_comes_back_in_evaluation_mode(saved_model: Path) -> None:
    expected = to_tree(build_model(model_spec("lenet", padding=2), data_spec(1, 8, 8), seed=7))
    model = fedsilo.load_model(saved_model)
    assert not any(module.training for module in model.modules())
    for name, array in to_tree(model).items():
        assert np.array_equal(array, expected[name]), name


def updates_of(silos: int, rounds: int, exchanges: int) -> list[dict[str, Any]]:
    """What a description says of the updates of a job, as `fedsilo.engine.result` writes it."""
    tasks = [
        f"{phase}{step}"
        for phase in ("train", "evaluate")
        for step in ("", ".keys", ".shares", ".survivors", ".unmask")
    ]
    return [
        {
            "round": number,
            "digests": {
                f"r{number:05d}-{task}-s{silo}": "0" * 64
                for task in tasks[:exchanges]
                for silo in range(silos)
            },
        }
        for number in range(1, rounds + 1)
    ]


@pytest.mark.parametrize(
    ("silos", "rounds", "exchanges"),
    [
        pytest.param(20, 1000, 10, id="secure and scored by silos"),
        pytest.param(5, 30_000, 2, id="short lines", marks=pytest.mark.thorough),
    ],
)
def test_a_model_of_a_long_job_is_read(saved_model: Path, silos: int, rounds: int, exchanges: int) -> None:
    describe(saved_model, updates=updates_of(silos, rounds, exchanges))
    assert saved_model.with_name("model.json").stat().st_size > 10 << 20, "more than a short document may be"
    assert isinstance(fedsilo.load_model(saved_model), Model)


def test_a_description_is_refused_before_what_takes_no_disk_takes_memory(saved_model: Path) -> None:
    path = saved_model.with_name("model.json")
    with path.open("ab") as file:
        file.truncate(200 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(
            ManifestInvalid, match=r"model\.json: byte \d+ is not JSON; use the model\.json that"
        ):
            fedsilo.load_model(saved_model)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_the_weights_outlive_the_file(saved_model: Path) -> None:
    model = fedsilo.load_model(str(saved_model))
    before = model(torch.ones(1, 1, 8, 8))
    saved_model.write_bytes(bytes(saved_model.stat().st_size))
    saved_model.unlink()
    assert torch.equal(model(torch.ones(1, 1, 8, 8)), before)
    assert isinstance(model, Model)
    model.classifier.weight.data.zero_()


def test_missing_files(saved_model: Path) -> None:
    saved_model.with_name("model.json").unlink()
    with pytest.raises(ManifestInvalid, match=r"model\.json: there is no such file; keep"):
        fedsilo.load_model(saved_model)
    with pytest.raises(ManifestInvalid, match=r"other\.safetensors: there is no such file; give"):
        fedsilo.load_model(saved_model.with_name("other.safetensors"))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"sha256": "0" * 64},
            ManifestInvalid,
            f"sha256: [0-9a-f]{{64}}: model.json says {'0' * 64}; fetch both",
        ),
        ({"sha256": None}, ManifestInvalid, "'sha256': is missing"),
        (
            {"model": {"name": "lennet"}},
            ManifestInvalid,
            "'lennet': is not a known model; did you mean lenet?",
        ),
        ({"data": {"inputShape": [1, 8, 8]}}, ManifestInvalid, "classes"),
        ({"data": [1, 8, 8]}, ManifestInvalid, "use the model.json that the job wrote"),
        (
            {"preprocessing": {"mean": [0.0]}},
            ManifestInvalid,
            "does not have fill, mean, scale and nothing else; use the model.json",
        ),
        (
            {"preprocessing": {"fill": [0], "mean": [0.5], "scale": [0]}},
            ManifestInvalid,
            r"preprocessing: scale: \[0\] is not a list of 1 finite numbers above 0",
        ),
        (
            {"preprocessing": {"fill": [0], "mean": [0.5, 1], "scale": [1]}},
            ManifestInvalid,
            r"preprocessing: mean: \[0.5, 1\] is not a list of 1 finite numbers;",
        ),
        (
            {"data": {"inputShape": [1, 8, 8], "classes": 9}},
            MethodError,
            r"'classifier.weight': shape \(10, 64\)",
        ),
    ],
)
def test_files_that_do_not_fit(
    saved_model: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    describe(saved_model, **changes)
    with pytest.raises(error, match=message):
        fedsilo.load_model(saved_model)


def test_not_json(saved_model: Path) -> None:
    saved_model.with_name("model.json").write_text("{")
    with pytest.raises(
        ManifestInvalid,
        match=r"model\.json: line 1, column 2 is not JSON; use the model.json that the job wrote",
    ):
        fedsilo.load_model(saved_model)


WIDE_DATA = {"inputShape": [60_000], "classes": 10}
BASE = {"name": "mlp", "config": {"hidden": [60_000] * 16}}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (BASE, r"tensor '.*': is not in this model"),
        (
            {"name": "concatenated", "config": {"encoders": 1000, "base": BASE}},
            "1000 encoders have 32000 tensors",
        ),
        (
            {"name": "concatenated", "config": {"encoders": 10**9, "base": BASE}},
            "encoders: .* less than or equal to 1000",
        ),
        ({"name": "concatenated", "config": {"base": BASE}}, "encoders: Field required"),
        (
            {
                "name": "concatenated",
                "config": {"encoders": 2, "base": {"name": "concatenated", "config": {}}},
            },
            "base: is made of other models itself",
        ),
        (
            {"name": "gated", "config": {"base": BASE, "mixes": "logits"}},
            r"tensor '.*': is not in this model",
        ),
        ({"name": "gated", "config": {"base": BASE, "mixes": "all"}}, "mixes: Input should be 'logits'"),
        ({"name": "gated", "config": {}}, "base: Field required"),
        (
            {"name": "python:tests.unit.learning.factories:wide_network", "config": {"width": 60_000}},
            r"tensor '.*': is not in this model",
        ),
    ],
)
def test_a_network_that_is_not_the_file_s_takes_no_memory(
    saved_model: Path, model: dict[str, Any], message: str
) -> None:
    describe(saved_model, model=model, data=WIDE_DATA)
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with pytest.raises((ManifestInvalid, MethodError), match=message) as caught:
            fedsilo.load_model(saved_model, allow_imports=["tests.unit.learning.factories"])
        assert "\n" not in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    finally:
        tracemalloc.stop()


def test_only_the_public_names_exist() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fedsilo.nothing  # noqa: B018


@pytest.mark.parametrize(
    "named",
    [
        {"model": {"name": "python:os:system", "config": {"command": "true"}}},
        {"model": {"name": "concatenated", "config": {"encoders": 2, "base": {"name": "python:os:system"}}}},
        {"model": {"name": "gated", "config": {"mixes": "logits", "base": {"name": "python:os:system"}}}},
        {"task": {"name": "python:os:system"}},
    ],
)
def test_what_a_description_names_runs_where_a_person_has_allowed_it(
    saved_model: Path, named: dict[str, Any]
) -> None:
    describe(saved_model, **named)
    with pytest.raises(
        ImportNotAllowed, match=r"model\.json: spec\.(model|task)\.name: .* would run os:system"
    ) as refused:
        fedsilo.load_model(saved_model)
    assert "\n" not in str(refused.value)
    with pytest.raises(MethodError, match="os:system"):
        fedsilo.load_model(saved_model, allow_imports=["os:system"])


@pytest.mark.parametrize(
    "model",
    [
        {"name": "concatenated", "config": {}},
        {"name": "concatenated", "config": {"encoders": 10**9, "base": {"name": "lenet"}}},
        {"name": "concatenated", "config": {"encoders": 2, "base": {"name": "concatenated", "config": {}}}},
        {"name": "gated", "config": {"mixes": "votes", "base": {"name": "lenet"}}},
        {"name": "gated", "config": {"mixes": "logits"}},
    ],
)
def test_a_model_that_no_method_makes_is_refused(saved_model: Path, model: dict[str, Any]) -> None:
    describe(saved_model, model=model)
    with pytest.raises(ManifestInvalid, match=r"use the model\.json that the job wrote"):
        fedsilo.load_model(saved_model)
