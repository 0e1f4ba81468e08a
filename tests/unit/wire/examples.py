"""One small update, and what its receiver expects; the tests of the wire vary it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import Problem
from fedsilo.wire import (
    AcceptedUpdate,
    Contract,
    ExpectedBlock,
    ExpectedUpdate,
    SigningKey,
    UpdateCheck,
    UpdateHeader,
)
from fedsilo.wire.envelope import SIGNATURE_HEAD
from fedsilo.wire.fields import pack
from fedsilo.wire.header import base, encode_header, gaps
from fedsilo.wire.keys import UPDATE
from tests.updates import write_update

KEY = SigningKey.generate()
BLOCKS = (
    ExpectedBlock("model", "encoder.weight", (3, 5), "float32"),
    ExpectedBlock("model", "encoder.steps", (), "int64"),
    ExpectedBlock("class_counts", "counts/0", (1,), "int64", 0),
    ExpectedBlock("class_means", "means/0", (7,), "float16", 0),
    ExpectedBlock("class_means", "means/1", (7,), "float16", 1),
)
CONTRACT = Contract(BLOCKS, ("loss", "accuracy"), {"accuracy": (0.0, 1.0)})
EXPECTED_UPDATE = ExpectedUpdate("job-uid", "task-3", 3, "silo-north/north", CONTRACT, bytes(range(32)))


def payloads() -> list[tuple[ExpectedBlock, np.ndarray]]:
    random = np.random.default_rng(7)
    arrays: list[np.ndarray] = [
        random.normal(size=(3, 5)).astype(np.float32),
        np.array(12, np.int64),
        np.array([41], np.int64),
        random.normal(size=7).astype(np.float16),
    ]
    return list(zip(BLOCKS, arrays, strict=False))


def write(path: Path, **changes: Any) -> bytes:
    """Write the example with some arguments changed, and return the file's bytes."""
    arguments: dict[str, Any] = {
        "job": EXPECTED_UPDATE.job,
        "task": EXPECTED_UPDATE.task,
        "round": EXPECTED_UPDATE.round,
        "sender": EXPECTED_UPDATE.sender,
        "contract": CONTRACT,
        "task_digest": EXPECTED_UPDATE.task_digest,
        "samples": 41,
        "metrics": {"loss": 0.5, "accuracy": 0.25},
        "blocks": payloads(),
        "key": KEY,
    }
    write_update(path, **(arguments | changes))
    return path.read_bytes()


def check(data: bytes, *sizes: int, expected: ExpectedUpdate = EXPECTED_UPDATE) -> AcceptedUpdate:
    """Feed the bytes in pieces of the given sizes, the rest in one, and finish."""
    checker = UpdateCheck(expected, KEY.verify_key)
    for size in sizes:
        checker.feed(data[:size])
        data = data[size:]
    checker.feed(data)
    return checker.finish()


def outcome(data: bytes, *sizes: int) -> str:
    """The code with which the bytes are refused, or the digest under which they are accepted."""
    try:
        return check(data, *sizes).digest
    except Problem as problem:
        return problem.code


def forge(header: UpdateHeader, contents: list[bytes]) -> bytes:
    """A well-signed update of any header and any payloads, whatever the contract says."""
    return forge_signed(encode_header(header), header, contents)


def forge_signed(data: bytes, header: UpdateHeader, contents: list[bytes]) -> bytes:
    signed = pack(data) + SIGNATURE_HEAD + KEY.sign(UPDATE, data)
    for gap, content in zip(gaps(len(signed), header.blocks), contents, strict=True):
        signed += gap + content
    return signed


def contents_of(data: bytes, header: UpdateHeader) -> list[bytes]:
    start = len(data) - header.length
    assert start == base(start - 5)
    return [data[start + block.offset :][: block.length] for block in header.blocks]


def refusal(code: str) -> Any:
    return pytest.raises(Problem, match=f"^{code}: ")


def changed_header(header: UpdateHeader, **changes: Any) -> UpdateHeader:
    return dataclasses.replace(header, **changes)
