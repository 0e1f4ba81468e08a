"""Networks that are odd in one way end with the bytes of their plain twins, whatever the method reads of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.federate import federate, job_spec, model_of, runners, skewed_silos

FACTORIES = "python:tests.unit.learning.factories"
CLASSES = {"s0": [0, 1], "s1": [1, 2], "s2": [2, 3]}

NAMING_METHODS = ["fedprox", "feddyn", "fedcm", "scaffold", "pfedme", "fedavg"]
"""Methods that look parameters up by their names, and one that does not."""


def ends_with(
    directory: Path, method: str, name: str, config: dict[str, Any], **sections: Any
) -> list[bytes]:
    """The tensors of a job's model, in their order."""
    directory.mkdir()
    model = {"name": f"{FACTORIES}:{name}", "config": config}
    spec = job_spec(method, 3, rounds=2, model=model | sections.pop("model", {}), **sections)
    engine = federate(directory, spec, runners(spec, skewed_silos(directory, CLASSES), directory))
    assert engine.result is not None, engine.failure
    return [np.ascontiguousarray(array).tobytes() for array in model_of(engine).values()]


def require_same_bytes(tmp_path: Path, method: str, name: str, odd: str, **sections: Any) -> None:
    odd_one, plain = (
        ends_with(tmp_path / str(is_odd), method, name, {odd: is_odd}, **sections) for is_odd in (True, False)
    )
    assert odd_one == plain


@pytest.mark.parametrize("method", NAMING_METHODS)
def test_parameters_are_found_by_the_names_of_the_state(method: str, tmp_path: Path) -> None:
    require_same_bytes(tmp_path, method, "renamed_network", "renamed")


def test_parts_of_the_model_are_found_by_the_names_of_the_state(tmp_path: Path) -> None:
    ends = [
        ends_with(
            tmp_path / str(renamed),
            "fedavg",
            "renamed_network",
            {"renamed": renamed},
            model={"parameters": {"frozen": [f"{prefix}0.*", f"{prefix}1.*"]}},
        )
        for renamed, prefix in ((True, ""), (False, "inner."))
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("method", "training"),
    [
        ("fedcm", {}),
        ("feddyn", {}),
        ("scaffold", {}),
        ("pfedme", {}),
        ("fedprox", {}),
        ("fedavg", {"gradientClip": 0.1}),
        ("fedavg", {"optimizer": {"name": "adam", "learningRate": 0.01}}),
        ("fedavg", {"optimizer": {"weightDecay": 0.1, "momentum": 0.9, "learningRate": 0.01}}),
    ],
)
def test_sparse_gradients_are_read_as_dense_ones(
    method: str, training: dict[str, Any], tmp_path: Path
) -> None:
    require_same_bytes(tmp_path, method, "sparse_network", "sparse", training=training)
