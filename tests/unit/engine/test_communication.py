"""A round whose tensors travel in fewer bytes: what silos and the server half see, and what stays exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.api.communication import CommunicationSpec
from fedsilo.encodings.halves import BFloat16Encoding
from fedsilo.engine.context import JobContext
from fedsilo.engine.traffic import estimate_traffic
from fedsilo.engine.workflow import Workflow
from fedsilo.methods import registry
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State
from tests.federate import (
    drive,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    references,
    runners,
    skewed_silos,
)
from tests.unit.verification.chains import replay_directory

CLASSES_OF = {"s0": [0, 1], "s1": [1, 2, 3]}
BOTH_DIRECTIONS = {"upload": {"encoding": "int8"}, "download": {"encoding": "bfloat16"}}


def test_the_aggregator_s_own_model_is_exact_and_the_silos_is_rounded(tmp_path: Path) -> None:
    spec = job_spec("fedavg", list(CLASSES_OF), communication=BOTH_DIRECTIONS)
    given = runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path)
    engine = open_engine(tmp_path / "aggregator", spec)
    before = engine.state.tree("model")
    workflow = Workflow(registry.bind(spec), JobContext.of(registry.bind(spec), references(spec), None))
    broadcast = workflow.assign(engine.state, workflow.exchanges[0], references(spec))
    handed = broadcast.state.tree(broadcast.tasks["silos/s0"].trees["model"])
    runner = given["silos/s0"]
    task = SiloTask("train", "train", 1, 1, 1, {"model": handed}, {})
    for name, array in runner.unpack_task(task, State()).task.trees["model"].items():
        assert (
            array.tobytes()
            == BFloat16Encoding().decode(BFloat16Encoding().encode(before[name]), array.shape).tobytes()
        )
        assert handed[name].nbytes * 2 == before[name].nbytes
    assert any(
        (runner.unpack_task(task, State()).task.trees["model"][name] != before[name]).any() for name in before
    )
    assert engine.state.tree("model").keys() == before.keys()


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_what_comes_of_it_is_folded_again_to_the_byte(tmp_path: Path, method: str) -> None:
    exact = job_spec(method, list(CLASSES_OF), rounds=3, aggregator={"keepUpdates": True})
    fewer = exact.model_copy(update={"communication": CommunicationSpec.model_validate(BOTH_DIRECTIONS)})
    silos = skewed_silos(tmp_path, CLASSES_OF)
    models = []
    for name, spec in (("exact", exact), ("fewer", fewer)):
        engine = open_engine(tmp_path / name / "aggregator", spec)
        drive(engine, local_silos(tmp_path / name, runners(spec, silos, tmp_path)))
        models.append(model_of(engine))
        replay_directory(tmp_path / name / "aggregator")
    for name, array in models[0].items():
        assert np.allclose(array, models[1][name], atol=0.02)
        assert (array != models[1][name]).any()


ZSTD = {"compression": "zstd"}


@pytest.mark.parametrize(
    ("method", "plain"),
    [("fedavg", BOTH_DIRECTIONS), ("scaffold", {"upload": {}, "download": {}})],
)
def test_compression_changes_no_bit_of_the_model(
    tmp_path: Path, method: str, plain: dict[str, dict[str, str]]
) -> None:
    compressed = {direction: given | ZSTD for direction, given in plain.items()}
    silos = skewed_silos(tmp_path, CLASSES_OF)
    models, sizes = [], []
    for name, communication in (("plain", plain), ("compressed", compressed)):
        spec = job_spec(
            method,
            list(CLASSES_OF),
            rounds=2,
            aggregator={"keepUpdates": True},
            communication=communication,
            model={"config": {"hidden": [512]}},
        )
        engine = open_engine(tmp_path / name / "aggregator", spec)
        drive(engine, local_silos(tmp_path / name, runners(spec, silos, tmp_path)))
        models.append(model_of(engine))
        replay_directory(tmp_path / name / "aggregator")
        kept = sorted((tmp_path / name / "aggregator").rglob("*.update"))
        sizes.append(sum(path.stat().st_size for path in kept))
    assert {n: a.tobytes() for n, a in models[0].items()} == {n: a.tobytes() for n, a in models[1].items()}
    assert 0 < sizes[1] < sizes[0]


def test_estimates_count_what_is_sent() -> None:
    plain = registry.bind(job_spec("fedavg", ["s0", "s1"], model={"config": {"hidden": [512]}}))
    fewer = registry.bind(
        job_spec("fedavg", ["s0", "s1"], model={"config": {"hidden": [512]}}, communication=BOTH_DIRECTIONS)
    )
    wide, narrow = (estimate_traffic(method, ("silos/s0", "silos/s1")) for method in (plain, fewer))
    assert 0.25 < narrow.up / wide.up < 0.28
    assert 0.5 < narrow.down / wide.down < 0.53
