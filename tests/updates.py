"""Updates that a test makes, holds in memory or finds in files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fedsilo.errors import Problem
from fedsilo.wire import (
    Contract,
    ExpectedBlock,
    SigningKey,
    UpdateHeader,
    lay_out,
    new_update,
    spec_of,
    stored_digest,
)
from fedsilo.wire.tensors import raw_bytes

_BIN_HEADS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""msgpack bin 8, bin 16, bin 32: bytes of length after the first."""

_SIGNATURE_BYTES = 66
"""The signature with its msgpack head."""


def write_update(
    path: Path,
    *,
    job: str,
    task: str,
    round: int,
    sender: str,
    contract: Contract,
    task_digest: bytes,
    samples: int,
    metrics: Mapping[str, float],
    blocks: Iterable[tuple[ExpectedBlock, np.ndarray]],
    key: SigningKey,
) -> str:
    """Write and sign an update of arrays.

    :returns: its digest, see `update_digest`.
    :raises Problem: whatever a receiver that holds the same contract would refuse.
    """
    payloads = list(blocks)
    header = UpdateHeader(
        job=job,
        task=task,
        round=round,
        sender=sender,
        key_id=key.verify_key.key_id,
        contract=bytes.fromhex(contract.digest()),
        task_digest=task_digest,
        samples=samples,
        metrics={name: float(value) for name, value in metrics.items()},
        blocks=lay_out((block.kind, spec_of(block.name, array)) for block, array in payloads),
        algorithm=contract.algorithm,
    )
    with new_update(path, header, contract, key) as update:
        for block, array in payloads:
            update.write(block.name, raw_bytes(array).data)
        return update.publish()


def digest_of(data: bytes) -> str:
    """SHA-256 of header and signature, by which a silo announces these bytes; of all of what begins with no header."""
    size = _BIN_HEADS.get(data[0], 0) if data else 0
    end = 1 + size + int.from_bytes(data[1 : 1 + size], "big") + _SIGNATURE_BYTES if size else len(data)
    return hashlib.sha256(data[:end]).hexdigest()


def digest_of_file(path: Path) -> str:
    """The digest of the update in a file if all of it holds; one that no update has, by its content, if not."""
    try:
        return stored_digest(path)
    except Problem:
        return hashlib.sha256(path.read_bytes()).hexdigest()
