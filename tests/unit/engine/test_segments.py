"""A job whose tensors travel in segments: methods see whole tensors, and the model is the same to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.federate import drive, job_spec, local_silos, model_of, open_engine, runners, skewed_silos
from tests.segments import segments_of
from tests.unit.verification.chains import replay_directory

CLASSES_OF = {"s0": [0, 1], "s1": [1, 2, 3]}


@pytest.mark.parametrize(
    ("method", "communication"),
    [
        ("fedavg", {}),
        ("scaffold", {}),
        ("ccvr", {}),
        ("fedavg", {"upload": {"encoding": "int8", "block": 16}}),
        ("fedavg", {"upload": {"encoding": "topk", "fraction": 0.4}}),
        ("fedavg", {"upload": {"compression": "zstd"}}),
    ],
    ids=str,
)
def test_the_model_is_the_same(tmp_path: Path, method: str, communication: dict[str, Any]) -> None:
    spec = job_spec(
        method, list(CLASSES_OF), rounds=2, aggregator={"keepUpdates": True}, communication=communication
    )
    silos = skewed_silos(tmp_path, CLASSES_OF)
    models = []
    for size in (64, 1 << 30):
        place = tmp_path / str(size)
        with segments_of(size):
            engine = open_engine(place / "aggregator", spec)
            drive(engine, local_silos(place, runners(spec, silos, tmp_path)))
            models.append({name: array.tobytes() for name, array in model_of(engine).items()})
            replay_directory(place / "aggregator")
    assert any(len(content) > 64 for content in models[0].values())
    assert models[0] == models[1]
