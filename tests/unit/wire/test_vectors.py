"""The committed vectors, read as another implementation would read them."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from fedsilo.api.communication import UploadSpec
from fedsilo.encodings import encoding_of
from fedsilo.encodings.encoding import in_memory_parts
from fedsilo.wire import (
    DTYPES,
    Contract,
    ExpectedBlock,
    ExpectedUpdate,
    Task,
    TensorSpec,
    UpdateCheck,
    VerifyKey,
    open_blob,
    open_chain,
    open_task,
    open_update,
    stored_digest,
    task_digest,
    verify_request,
    verify_statement,
)
from tests.paths import ROOT
from tests.segments import segments_of
from tests.unit.wire.examples import refusal
from tests.vectors.make import make

VECTORS = ROOT / "tests" / "vectors"
DOCUMENT: dict[str, Any] = json.loads((VECTORS / "vectors.json").read_text())
KEYS = {name: VerifyKey.from_text(key["public"]) for name, key in DOCUMENT["keys"].items()}
TASK = open_task((VECTORS / "task.bin").read_bytes(), KEYS["aggregator"])


def contract_of(document: dict[str, Any]) -> Contract:
    blocks = (ExpectedBlock(**(block | {"shape": tuple(block["shape"])})) for block in document["blocks"])
    return Contract(tuple(blocks), tuple(document["metrics"]))


CONTRACT = contract_of(DOCUMENT["contract"])
SEGMENTS = DOCUMENT["segments"]
BLAKE3 = DOCUMENT["blake3"]
EXPECTED_UPDATE = ExpectedUpdate(
    TASK.job, TASK.task, TASK.round, TASK.silo, CONTRACT, bytes.fromhex(DOCUMENT["task"]["digest"])
)


def check(data: bytes, expected: ExpectedUpdate = EXPECTED_UPDATE) -> str:
    checker = UpdateCheck(expected, KEYS["silo"])
    checker.feed(data)
    return checker.finish().digest


@pytest.fixture
def in_segments() -> Iterator[ExpectedUpdate]:
    """What the receiver of the updates in segments expects, while these are as small as there."""
    with segments_of(SEGMENTS["segmentBytes"]):
        yield dataclasses.replace(EXPECTED_UPDATE, contract=contract_of(SEGMENTS["contract"]))


def meaning_of(task: Task) -> Any:
    found = dataclasses.asdict(task)
    found |= {"spec_digest": task.spec_digest.hex(), "contract": task.contract.hex()}
    return json.loads(json.dumps(found))


def test_the_task_means_what_it_should() -> None:
    assert meaning_of(TASK) == DOCUMENT["task"]["means"]
    assert task_digest((VECTORS / "task.bin").read_bytes()).hex() == DOCUMENT["task"]["digest"]
    assert CONTRACT.digest() == DOCUMENT["contract"]["digest"] == TASK.contract.hex()
    assert {name: key.key_id for name, key in KEYS.items()} == {
        n: k["keyId"] for n, k in DOCUMENT["keys"].items()
    }


@pytest.mark.parametrize("vector", DOCUMENT["updates"], ids=lambda vector: vector["file"])
def test_updates_are_accepted_and_mean_what_they_should(vector: dict[str, Any]) -> None:
    path = VECTORS / vector["file"]
    assert check(path.read_bytes()) == vector["digest"]
    with open_update(path) as update:
        assert (update.header.samples, update.header.metrics) == (vector["samples"], vector["metrics"])
        assert [block.name for block in update.header.blocks] == list(vector["blocks"])
        for name, content in vector["blocks"].items():
            assert update.tensor(name).tobytes().hex() == content


def test_tensors_in_segments_are_accepted_and_mean_what_they_should(in_segments: ExpectedUpdate) -> None:
    vector = SEGMENTS["update"]
    path = VECTORS / vector["file"]
    assert in_segments.contract.digest() == SEGMENTS["contract"]["digest"]
    assert check(path.read_bytes(), in_segments) == stored_digest(path) == vector["digest"]
    with open_update(path) as update:
        assert {name: update.tensor(name).tobytes().hex() for name in vector["blocks"]} == vector["blocks"]
        assert [entry.name for entry in update.header.tensors] == list(vector["blocks"])


@pytest.fixture
def with_blake3() -> ExpectedUpdate:
    """What the receiver expects where the job's digests are BLAKE3."""
    contract = dataclasses.replace(CONTRACT, algorithm="blake3")
    return dataclasses.replace(
        EXPECTED_UPDATE, contract=contract, task_digest=bytes.fromhex(BLAKE3["task"]["digest"])
    )


def test_a_task_and_an_update_with_blake3_mean_what_they_should(with_blake3: ExpectedUpdate) -> None:
    data = (VECTORS / BLAKE3["task"]["file"]).read_bytes()
    assert task_digest(data) == with_blake3.task_digest
    assert meaning_of(open_task(data, KEYS["aggregator"])) == BLAKE3["task"]["means"]
    path, vector = VECTORS / BLAKE3["update"]["file"], BLAKE3["update"]
    assert with_blake3.contract.digest() == BLAKE3["contract"]["digest"]
    assert check(path.read_bytes(), with_blake3) == stored_digest(path) == vector["digest"]
    with open_update(path) as update:
        assert update.header.algorithm == "blake3"
        found = {
            block.name: {"bytes": update.tensor(block.name).tobytes().hex(), "digest": block.digest.hex()}
            for block in update.header.blocks
        }
    assert found == vector["blocks"]
    for block in found.values():
        assert blake3(bytes.fromhex(block["bytes"])).hexdigest() == block["digest"]


@pytest.mark.parametrize("vector", BLAKE3["refused"], ids=lambda vector: vector["file"])
def test_updates_with_other_digests_than_blake3_are_refused(
    vector: dict[str, Any], with_blake3: ExpectedUpdate
) -> None:
    with refusal(vector["code"]):
        check((VECTORS / vector["file"]).read_bytes(), with_blake3)


@pytest.mark.parametrize("vector", SEGMENTS["refused"], ids=lambda vector: vector["file"])
def test_segments_that_must_be_refused_are_refused(
    vector: dict[str, Any], in_segments: ExpectedUpdate
) -> None:
    with refusal(vector["code"]):
        check((VECTORS / vector["file"]).read_bytes(), in_segments)


def test_the_seal_of_a_provenance_means_what_it_should() -> None:
    vector = DOCUMENT["provenanceSeal"]
    end = open_chain((VECTORS / vector["file"]).read_bytes(), KEYS["aggregator"])
    assert dataclasses.asdict(end) | {"chain": end.chain.hex()} == vector["means"]


def test_the_blob_means_what_it_should() -> None:
    path = VECTORS / DOCUMENT["blob"]["file"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DOCUMENT["blob"]["digest"]
    with open_blob(path) as blob:
        assert {name: array.tobytes().hex() for name, array in blob.items()} == DOCUMENT["blob"]["tensors"]


@pytest.mark.parametrize("vector", DOCUMENT["refused"], ids=lambda vector: vector["file"])
def test_what_must_be_refused_is_refused(vector: dict[str, Any]) -> None:
    data = (VECTORS / vector["file"]).read_bytes()
    with refusal(vector["code"]):
        if vector["as"] == "update":
            check(data)
        else:
            open_task(data, KEYS["aggregator"])


@pytest.mark.parametrize("vector", DOCUMENT["requests"])
def test_requests_are_judged_as_they_should(vector: dict[str, Any]) -> None:
    request = vector["request"] | {}
    request["body"] = None if request["body"] is None else request["body"].encode()
    if "sender" in vector:
        assert (
            verify_request(vector["authorization"], {TASK.silo: KEYS["silo"]}, **request) == vector["sender"]
        )
    else:
        with refusal(vector["code"]):
            verify_request(vector["authorization"], {TASK.silo: KEYS["silo"]}, **request)


@pytest.mark.parametrize("vector", DOCUMENT["statements"], ids=lambda vector: vector["means"])
def test_statements_are_judged_as_they_should(vector: dict[str, Any]) -> None:
    domain, statement, key = vector["domain"], vector["statement"], KEYS[vector["by"]]
    if "code" in vector:
        with refusal(vector["code"]):
            verify_statement(domain, statement, key)
        return
    verify_statement(domain, statement, key)
    # As another implementation would: the message stands in the vector.
    key.verify(domain, vector["message"].encode(), base64.b64decode(statement["signature"]))
    signed = json.loads(vector["message"])
    assert signed == {
        name: value for name, value in statement.items() if name != "signature" and value is not None
    }


def test_there_are_enough_refusals_and_no_file_is_left_over() -> None:
    assert len(DOCUMENT["refused"]) > 40
    named = {entry["file"] for entry in (*DOCUMENT["refused"], *DOCUMENT["updates"])}
    named |= {entry["file"] for entry in (*SEGMENTS["refused"], SEGMENTS["update"])}
    named |= {entry["file"] for entry in (*BLAKE3["refused"], BLAKE3["update"], BLAKE3["task"])}
    assert {path.name for path in VECTORS.glob("*.bin")} == named | {"task.bin", "provenance-seal.bin"}


def test_the_generator_makes_the_committed_files(tmp_path: Path) -> None:
    make(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {name: (VECTORS / name).read_bytes() for name in made}
    assert made == committed


@pytest.mark.parametrize(
    "sent", DOCUMENT["encodings"]["sent"], ids=lambda sent: f"{len(sent)}-{sent['encoding']}"
)
def test_an_encoded_tensor_is_taken_and_decodes_to_what_it_should(sent: dict[str, Any]) -> None:
    options = {name: sent[name] for name in ("block", "fraction", "compression") if name in sent}
    encoding = encoding_of(UploadSpec.model_validate({"encoding": sent["encoding"]} | options))
    assert encoding is not None
    shape = tuple(DOCUMENT["encodings"]["shape"])
    parts = [
        np.frombuffer(bytes.fromhex(part["bytes"]), DTYPES[part["dtype"]]).reshape(part["shape"])
        for part in sent["parts"]
    ]
    encoding.check(TensorSpec("w", shape, "float32"), in_memory_parts(parts))
    assert encoding.decode(parts, shape).tobytes().hex() == sent["decoded"]
    if sent["encoding"] == "float32":
        assert sent["decoded"] == DOCUMENT["encodings"]["values"]
