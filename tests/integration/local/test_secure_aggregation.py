"""Jobs whose aggregator sees sums only, with real guards: the plain job's model, and silos that are lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.wire import open_blob
from tests.integration.local.manifest import silo, silos, write
from tests.integration.local.runs import Ended, run

NAMES = ("north", "east", "south", "west")

SECURE = {"secure": True}


def lines(workdir: Path, name: str, event: str) -> list[dict[str, Any]]:
    log = workdir / "silos" / name / "audit" / "log.jsonl"
    return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == event]


def model(ended: Ended) -> dict[str, np.ndarray]:
    return open_blob(ended.workdir / "model.safetensors").tree()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A job of four silos that ended well, with its updates kept."""
    folder = tmp_path_factory.mktemp("secure")
    manifest = write(
        folder / "secure.yaml",
        silos(*NAMES),
        aggregation=SECURE,
        participation={"minSilos": 3},
        aggregator={"keepUpdates": True},
    )
    return run(manifest, folder / "run")


def test_the_model_is_that_of_the_plain_job_and_of_a_simulation(secure: Ended, tmp_path: Path) -> None:
    assert secure.code == 0, secure.err
    plain = run(write(tmp_path / "plain.yaml", silos(*NAMES)), tmp_path / "plain")
    for name, array in model(secure).items():
        np.testing.assert_allclose(array, model(plain)[name], atol=1e-6)
    simulated = run(secure.workdir.parent / "secure.yaml", tmp_path / "simulated", "--in-process")
    assert simulated.document["model"]["sha256"] == secure.document["model"]["sha256"]


def test_nothing_of_a_single_silo_is_on_record(secure: Ended) -> None:
    first = secure.history[0]
    assert (first["samples"], first["silos"]) == ({}, {})
    assert first["summed"]["silos"] == [f"silo-{name}/{name}" for name in NAMES]
    assert first["summed"]["samples"] == secure.document["samples"] > 1000
    assert first["training"].keys() == {"loss"}
    assert [entry["samples"] for entry in secure.document["silos"]] == [None] * 4


def test_every_message_is_in_the_audit_log_and_only_masked_updates_are_large(secure: Ended) -> None:
    departed = lines(secure.workdir, "north", "departure")
    assert [line["phase"] for line in departed[:5]] == [
        "train.keys",
        "train.shares",
        "train",
        "train.survivors",
        "train.unmask",
    ]
    assert all(line["kinds"].keys() == {"secure_aggregation"} for line in departed)
    sizes = [line["kinds"]["secure_aggregation"]["bytes"] for line in departed[:5]]
    numbers = sum(array.size for array in model(secure).values())
    assert sizes == [160, 3 * 148, 8 * (numbers + 3), 64, 4 * 66]
    assert [line["samples"] for line in departed] == [0] * 10


def test_silos_that_are_lost_after_they_have_shared_leave_the_sum_of_the_others(tmp_path: Path) -> None:
    few = silo("west", {"partition": {"scheme": "iid", "silos": 8, "index": 7}})
    manifest = write(
        tmp_path / "lost.yaml",
        [*silos("north", "east", "south"), few],
        aggregation=SECURE,
        training={"rounds": 3, "trainer": "python:tests.integration.local.own_training:lost_in_round_two"},
        participation={"minSilos": 3},
        backoffLimit=0,
    )
    ended = run(manifest, tmp_path / "run")
    assert ended.code == 0, ended.err
    assert [len(record["summed"]["silos"]) for record in ended.history] == [4, 3, 3]
    assert "TrainerLost" in ended.history[1]["failed"]["silo-west/west"]
    assert "r00002-train.shares-west" in {line["task"] for line in lines(ended.workdir, "west", "departure")}


def test_below_the_quorum_nothing_is_unmasked_and_the_job_says_so(tmp_path: Path) -> None:
    few = silo("west", {"partition": {"scheme": "iid", "silos": 8, "index": 7}})
    manifest = write(
        tmp_path / "lost.yaml",
        [*silos("north", "east", "south"), few],
        aggregation=SECURE,
        training={"rounds": 2, "trainer": "python:tests.integration.local.own_training:lost_in_round_two"},
        participation={"minSilos": 4},
        backoffLimit=0,
    )
    ended = run(manifest, tmp_path / "run")
    assert (ended.code, ended.document["reason"]) == (4, "QuorumLost")
    assert (
        "3 of 4 silos answered, quorum is 4; silo-west/west failed: TrainerLost" in ended.document["message"]
    )
    for name in ("north", "east", "south"):
        tasks = {line["task"] for line in lines(ended.workdir, name, "departure")}
        assert f"r00002-train-{name}" in tasks
        assert not tasks & {f"r00002-train.survivors-{name}", f"r00002-train.unmask-{name}"}
