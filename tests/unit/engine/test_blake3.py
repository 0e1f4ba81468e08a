"""A job whose large content is hashed with BLAKE3: the same model, and every digest that is not one is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FileDamaged, ProvenanceInvalid
from fedsilo.methods.interface import INITIAL_WEIGHTS
from fedsilo.methods.state import State
from fedsilo.wire import open_signed_part, open_task, signed_part
from tests.federate import (
    TASK_KEY,
    drive,
    federate,
    job_spec,
    local_silos,
    open_engine,
    runners,
    silo_key,
    skewed_silos,
)
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.engine.test_initial_weights import beginning_with, plain_spec, weights_of
from tests.unit.engine.test_store import at_every_flush_below, outcome
from tests.unit.verification.chains import lines_of, replay_directory, verify_directory

NAME = re.compile(r"blake3-[0-9a-f]{64}")


def with_digest(digest: str, /, method: str = "fedavg", **sections: Any) -> FederatedJobSpec:
    communication = {"digest": digest} | sections.pop("communication", {})
    return job_spec(
        method, 2, rounds=2, communication=communication, aggregator={"keepUpdates": True}, **sections
    )


SPEC = with_digest("blake3")


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("blake3")
    federate(root, SPEC, synthetic_runners(SPEC))
    return root / "aggregator"


@pytest.mark.parametrize(
    ("method", "sections"),
    [
        ("fedavg", {}),
        ("scaffold", {}),
        ("fedavg", {"evaluation": {"every": 1, "best": {"metric": "accuracy"}}}),
        (
            "fedavg",
            {"communication": {"upload": {"encoding": "int8"}, "download": {"encoding": "bfloat16"}}},
        ),
    ],
)
def test_it_ends_with_the_model_of_a_job_with_sha256_and_folds_to_the_same_again(
    tmp_path: Path, method: str, sections: dict[str, Any]
) -> None:
    found = {}
    for digest in ("sha256", "blake3"):
        spec = with_digest(digest, method, **sections)
        root = tmp_path / digest
        root.mkdir()
        silos = skewed_silos(root, {"s0": [0, 1], "s1": [1, 2, 3]})
        federate(root, spec, runners(spec, silos, root))
        found[digest] = (root / "aggregator" / "model.safetensors").read_bytes()
        said = json.loads((root / "aggregator" / "model.json").read_text())
        assert said["sha256"] == hashlib.sha256(found[digest]).hexdigest()
        replay_directory(root / "aggregator")
    assert found["sha256"] == found["blake3"]


def test_blobs_tasks_headers_and_states_name_what_is_large_by_it(finished_job: Path) -> None:
    assert all(NAME.fullmatch(path.name) for path in (finished_job / "blobs").iterdir())
    chain = verify_directory(finished_job)
    for exchange in chain.exchanges:
        assert all(NAME.fullmatch(link.digest) for task in exchange.tasks.values() for link in task.blobs)
        assert all(map(NAME.fullmatch, exchange.line.state.trees.values()))
    updates = sorted((finished_job / "kept").rglob("*.update"))
    for path in updates:
        silo = f"silos/{path.stem.rpartition('-')[2]}"
        header = open_signed_part(signed_part(path), silo_key(silo).verify_key)
        assert header.algorithm == "blake3"
    assert len(updates) == 6, "of two rounds and an evaluation"
    assert re.fullmatch(r"[0-9a-f]{64}", chain.model)


@pytest.mark.thorough
def test_killed_at_any_flush_the_job_ends_with_the_same_bytes(tmp_path: Path) -> None:
    directory, copies, flushes = tmp_path / "aggregator", list[Path](), count()

    def copy() -> None:
        if next(flushes) % 2:  # between two names of digests there are several
            return
        copies.append(tmp_path / f"crash-{len(copies)}")
        shutil.copytree(directory, copies[-1])

    with at_every_flush_below(directory, copy):
        undisturbed = outcome(federate(tmp_path, SPEC, synthetic_runners(SPEC)))
    assert len(copies) > 10
    for crash in copies:
        engine = open_engine(crash, SPEC)
        drive(engine, local_silos(tmp_path / f"silos-{crash.name}", synthetic_runners(SPEC)))
        assert outcome(engine) == undisturbed, crash.name


def test_a_damaged_blob_is_found_when_the_job_goes_on(tmp_path: Path, finished_job: Path) -> None:
    directory = Path(shutil.copytree(finished_job, tmp_path / "aggregator"))
    blob = next((directory / "blobs").iterdir())
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    with pytest.raises(
        FileDamaged, match=rf"{blob.name}: its BLAKE3 is [0-9a-f]{{12}}, not {blob.name[7:19]}"
    ):
        open_engine(directory, SPEC)


def test_the_file_of_initial_weights_keeps_the_digest_that_the_job_names(tmp_path: Path) -> None:
    method = {"name": "map", "config": {"variant": "released"}}
    given = beginning_with(
        weights_of(plain_spec(), 5), tmp_path, "map", method=method, communication={"digest": "blake3"}
    )
    engine = open_engine(tmp_path / "aggregator", given, root=tmp_path)
    sealed = engine.task("silos/s0")
    assert sealed is not None and given.model.initial_weights is not None
    blobs = {link.name: link.digest for link in open_task(sealed.sealed, TASK_KEY.verify_key).blobs}
    assert blobs.pop(INITIAL_WEIGHTS) == given.model.initial_weights.sha256
    assert all(map(NAME.fullmatch, blobs.values()))
    silos = runners(given, skewed_silos(tmp_path, {"s0": [0, 1], "s1": [1, 2, 3]}), tmp_path)
    drive(engine, local_silos(tmp_path, silos))
    assert engine.failure is None
    trees = lines_of(tmp_path / "aggregator")[-2]["state"]["trees"]
    assert trees.pop(INITIAL_WEIGHTS) == given.model.initial_weights.sha256
    assert all(map(NAME.fullmatch, trees.values()))
    verify_directory(tmp_path / "aggregator")


@pytest.mark.parametrize("asked", ["blake3", "sha256"])
def test_an_aggregator_that_names_its_blobs_by_another_hash_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The aggregator signs what it does, and all of it holds, but it is not what the job says."""
    spec, other = with_digest(asked), {"blake3": "sha256", "sha256": "blake3"}[asked]
    with monkeypatch.context() as patch:
        patch.setattr(Workflow, "stored_state", lambda _, state, blobs: State.store(state, blobs, other))
        federate(tmp_path, spec, synthetic_runners(spec))
    with pytest.raises(ProvenanceInvalid, match=r"task-mismatch: .*blob model has .*; the job asks for "):
        verify_directory(tmp_path / "aggregator")


def test_silos_that_sign_under_another_contract_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract: Callable[..., Any] = Workflow.contract
    with monkeypatch.context() as patch:
        patch.setattr(Workflow, "contract", lambda *args: replace(contract(*args), algorithm="sha256"))
        federate(tmp_path, SPEC, synthetic_runners(SPEC))
    with pytest.raises(ProvenanceInvalid, match="digest is sha256; must be blake3"):
        verify_directory(tmp_path / "aggregator")
