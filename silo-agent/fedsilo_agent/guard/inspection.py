"""From what the trainer dropped to a signed update: one copy, checked on the way.

The trainer runs code that the silo did not write, so nothing in its drop is taken on trust: files must be plain
files of bounded size, every block must be one that the contract expects, and every per-class block must stand on
enough samples.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.wire import Contract, ExpectedBlock, MappedTensors, SigningKey, Task, open_blob, write_update
from fedsilo.wire.blob import MAX_BLOB_HEADER

MAX_JSON = 4 << 20
CHUNK = 1 << 20
MAX_COUNT = 2**63 - 1  # the largest integer of the wire


@dataclass(frozen=True)
class DroppedReply:
    """`reply.json`, parsed."""

    samples: int
    metrics: Mapping[str, float]
    support: Mapping[str, float]


@dataclass(frozen=True)
class Departure:
    """What is about to leave, for the audit log."""

    digest: str
    bytes: int
    samples: int
    metrics: Mapping[str, float]
    kinds: Mapping[str, Mapping[str, int]]


def read_failure(path: Path) -> tuple[str, str]:
    """Reason and message of a `failed.json` of the trainer."""
    document = _read_json(path)
    reason, message = document.get("reason"), document.get("message")
    if not isinstance(reason, str) or not isinstance(message, str):
        raise PolicyRefused(f"{path.name}: not a failure report with reason and message")
    return reason, message


def read_signature(path: Path) -> tuple[Any, str]:
    """Model signature (as plain values) and words on isolation from `signature.json`."""
    document = _read_json(path)
    return document.get("signature"), str(document.get("isolation", ""))


def sign_reply(
    drop: Path,
    update: Path,
    task: Task,
    task_digest: bytes,
    contract: Contract,
    min_samples: int,
    key: SigningKey,
) -> Departure:
    """Copy the drop into a signed update that only the guard writes.

    :param min_samples: samples that a per-class block must stand on.
    :raises PolicyRefused: naming the block and what is wrong with it.
    """
    reply = _read_reply(drop / "reply.json")
    try:
        with _own_copy(drop / "tensors", update.parent, contract) as copy, open_blob(copy) as tensors:
            blocks = _expected_blocks(tensors, contract, reply, min_samples)
            digest = write_update(
                update,
                job=task.job,
                task=task.task,
                round=task.round,
                sender=task.silo,
                contract=contract,
                task_digest=task_digest,
                samples=reply.samples,
                metrics=reply.metrics,
                blocks=[(block, tensors.tensor(block.name)) for block in blocks],
                key=key,
            )
    except Problem as problem:
        raise PolicyRefused(
            f"task {task.task}: the trainer's reply breaks the contract: {problem}"
        ) from problem
    kinds: dict[str, dict[str, int]] = {}
    for block in blocks:
        count = kinds.setdefault(block.kind, {"blocks": 0, "bytes": 0})
        count["blocks"] += 1
        count["bytes"] += block.spec.nbytes
    return Departure(digest, update.stat().st_size, reply.samples, dict(reply.metrics), kinds)


def _expected_blocks(
    tensors: MappedTensors, contract: Contract, reply: DroppedReply, min_samples: int
) -> list[ExpectedBlock]:
    present = set(tensors.specs)
    expected = [block for block in contract.blocks if block.name in present]
    unknown = sorted(present - {block.name for block in expected})
    if unknown:
        raise Problem("unexpected-block", f"block {unknown[0]!r} is not in the contract")
    for block in expected:
        found = tensors.specs[block.name]
        if found.shape != block.shape:
            raise Problem("wrong-shape", f"block {block.name}: shape {found.shape}, expected {block.shape}")
        if found.dtype != block.dtype:
            raise Problem("wrong-dtype", f"block {block.name}: dtype {found.dtype}, expected {block.dtype}")
        if block.label is not None and reply.support.get(block.name, 0) < min_samples:
            raise PolicyRefused(
                f"block {block.name}: class {block.label} stands on {reply.support.get(block.name, 0):g} samples, "
                f"fewer than minSamplesPerClass {min_samples}; the method must leave it out"
            )
    return expected


def _read_reply(path: Path) -> DroppedReply:
    document = _read_json(path)
    samples, metrics, support = (document.get(key) for key in ("samples", "metrics", "support"))
    if not isinstance(samples, int) or isinstance(samples, bool) or not 0 <= samples <= MAX_COUNT:
        raise PolicyRefused(f"reply.json: samples {str(samples)[:80]} is not a count")
    return DroppedReply(samples, _numbers("metrics", metrics), _numbers("support", support))


def _numbers(name: str, value: Any) -> dict[str, float]:
    try:
        numbers = {key: _finite(number) for key, number in value.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise PolicyRefused(f"reply.json: {name} {str(value)[:80]} are not finite numbers by name") from None
    return numbers


def _finite(number: Any) -> float:
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
        raise ValueError(number)
    return float(number)


def _read_json(path: Path) -> dict[str, Any]:
    with _plain_file(path) as file:
        content = file.read(MAX_JSON + 1)
    if len(content) > MAX_JSON:
        raise PolicyRefused(f"{path.name}: larger than {MAX_JSON} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise PolicyRefused(f"{path.name}: not JSON") from None
    if not isinstance(document, dict):
        raise PolicyRefused(f"{path.name}: not a JSON object")
    return document


@contextmanager
def _own_copy(source: Path, directory: Path, contract: Contract) -> Iterator[Path]:
    """The trainer's file in a place that only the guard writes, for as long as it is needed.

    Whoever maps a file that the trainer can cut dies when it does; and what is checked must be what is sent.
    """
    limit = contract.max_bytes() + MAX_BLOB_HEADER + 8
    copy = directory / "drop.copy"
    try:
        with _plain_file(source) as file, copy.open("wb") as own:
            while own.tell() <= limit and (piece := file.read(CHUNK)):
                own.write(piece)
            size = own.tell()
        if size > limit:
            raise PolicyRefused(f"{source.name}: larger than the {limit} bytes that the contract can fill")
        yield copy
    finally:
        copy.unlink(missing_ok=True)


@contextmanager
def _plain_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file of the trainer's; a link, a pipe or a device would make the guard read, or wait for, another.

    :raises PolicyRefused: when it is anything but a plain file in a plain directory.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise PolicyRefused(f"{where}: not a plain file of the trainer's ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PolicyRefused(f"{where}: not a plain file of the trainer's")
    with os.fdopen(descriptor, "rb") as file:
        yield file
