"""From what the trainer dropped to a signed update: one pass, one copy, checked on the way.

The trainer runs code that the silo did not write, so nothing in its drop is trusted: files must be plain files of
bounded size, and their content must pass `fedsilo.silo.reply`. Its tensors may change, or be cut off, while they are
read: so they are read once and never mapped, and what is checked is what is sent, the guard's own copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.encodings.check import require_decodable
from fedsilo.errors import FileDamaged, PolicyRefused, Problem
from fedsilo.files.json_files import holds_digest
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.drop import REPLY, TENSORS, damaged_file
from fedsilo.silo.policy import ReplyLimits
from fedsilo.silo.reply import (
    ReplyMetadata,
    released_blocks,
    require_enough_examples,
    require_enough_values,
    require_planned,
)
from fedsilo.silo.trainer_files import as_object, read_content, read_object, trainer_file
from fedsilo.transforms.training_noise.handed_out import exact_tensors, require_handed_out
from fedsilo.wire import BlobReader, Contract, SigningKey, Task, UpdateHeader, lay_out, new_update
from fedsilo.wire.blob import MAX_BLOB_HEADER_BYTES
from fedsilo.wire.header import TensorEntry
from fedsilo.wire.tensors import raw_bytes, spec_of
from fedsilo_agent.guard.task_model import own_copy, task_model
from fedsilo_agent.guard.update_noise import UpdateNoise

REASON = re.compile(r"[A-Z][A-Za-z]{0,63}")
"""Reasons that the aggregator takes; see docs/wire.md."""


@dataclass(frozen=True)
class SignedUpdate:
    """An update that is about to leave, as the audit log describes it.

    :param bytes: of the whole file.
    :param kinds: payload kind -> number of its blocks and their bytes.
    :param mechanisms: that its examples went through by the job's plan, which is the guard's own work where it adds the
        noise.
    :param records: number of the silo's examples, or persons, from which that noise follows; None where it does not.
    """

    digest: str
    bytes: int
    samples: int
    metrics: Mapping[str, float]
    kinds: Mapping[str, Mapping[str, int]]
    mechanisms: tuple[Mechanism, ...] = ()
    records: int | None = None


Plan = Callable[[int], tuple[Mechanism, ...]]
"""Samples of the silo -> the mechanisms that a reply must have gone through."""


def read_failure(path: Path) -> tuple[str, str]:
    """Reason and message of a `failed.json` of the trainer."""
    document = read_object(path)
    reason, message = document.get("reason"), document.get("message")
    if not isinstance(reason, str) or not REASON.fullmatch(reason) or not isinstance(message, str):
        raise PolicyRefused(
            f"{path.name}: not a failure report with a reason in one CamelCase word and a message"
        )
    return reason, message


@dataclass(frozen=True)
class Announcement:
    """What a trainer says before round 1, as plain values that nobody has checked.

    :param signature: of the model; None where the data are not named as in the job, and nothing will be trained.
    :param schema: of the data; None of a trainer that announces none.
    :param findings: what a check of the data says; likewise.
    """

    signature: Any
    isolation: str
    schema: Any
    findings: Any = None


def read_announcement(path: Path) -> Announcement:
    """The content of `signature.json`.

    :raises FileDamaged: when it has a digest and is not what the trainer wrote.
    """
    content = read_content(path)
    if b'"sha256": ' in content and not holds_digest(content):
        raise FileDamaged(f"{path}: damaged, it is not what the trainer wrote; start the trainer again")
    document = as_object(path, content)
    signature, schema, findings = (document.get(name) for name in ("signature", "schema", "findings"))
    return Announcement(signature, str(document.get("isolation", "")), schema, findings)


def sign_reply(
    drop: Path,
    update: Path,
    task: Task,
    task_digest: bytes,
    contract: Contract,
    limits: ReplyLimits,
    key: SigningKey,
    private: UpdateNoise | None = None,
    blobs: Path | None = None,
    plan: Plan | None = None,
) -> SignedUpdate:
    """Copy the drop into a signed update that only the guard writes, piece by piece and each byte once.

    :param limits: of what the silo releases.
    :param private: what is done to its tensors on the way, where the guard adds the noise; no figures leave then.
    :param blobs: directory of the task's tensors, where the trainer adds it: what nobody can add noise to must be as
        they have it.
    :param plan: what its samples must have gone through; None where the trainer's word counts, and nothing is charged.
    :raises PolicyRefused: naming the block and what is wrong with it.
    """
    reply = ReplyMetadata.parse(read_object(drop / REPLY))
    mechanisms = reply.mechanisms
    if plan is not None:
        mechanisms = plan(reply.samples)
        require_planned(reply.mechanisms, mechanisms, reply.samples)
    records = reply.samples if mechanisms else None
    try:
        with ExitStack() as files:
            file = files.enter_context(trainer_file(drop / TENSORS))
            _require_small(file, contract)
            if private is None:
                copied, tensors = None, BlobReader(drop / TENSORS, file)
            else:
                copied = files.enter_context(own_copy(file, update.parent, _max_bytes(contract)))
                tensors = BlobReader(drop / TENSORS, copied)
            blocks = released_blocks(contract, tensors.specs, reply.support, limits.min_samples_per_class)
            listed = lay_out((block.kind, tensors.specs[block.name]) for block in blocks)
            header = _header(task, task_digest, contract, key, listed)
            if private is None:
                samples, metrics = limits.samples(reply.samples), limits.metrics(reply.metrics)
                header = replace(header, samples=samples, metrics=metrics)
            with new_update(update, header, contract, key) as own:
                pieces = tensors.pieces()
                if private is not None and copied is not None:
                    pieces = private.pieces(task, [block.name for block in blocks], copied, update.parent)
                for name, piece in pieces:
                    own.write(name, piece)
                require_enough_values(blocks, own.read, limits.min_values_per_feature)
                require_enough_examples(
                    blocks, own.read, limits.min_samples_per_class, limits.min_samples_per_feature
                )
                require_decodable(contract, own.read_items, lambda name: tensors.specs[name].size)
                exact = () if blobs is None else exact_tensors(contract)
                if blobs is not None and exact:
                    with task_model(task, blobs, update.parent) as given:
                        require_handed_out(exact, own.read, given)
                digest = own.publish()
    except Problem as problem:
        raise PolicyRefused(
            f"task {task.task}: the trainer's reply breaks the contract: {problem}"
        ) from problem
    kinds: dict[str, dict[str, int]] = {}
    for block in blocks:
        count = kinds.setdefault(block.kind, {"blocks": 0, "bytes": 0})
        count["blocks"] += 1
        count["bytes"] += tensors.specs[block.name].nbytes
    size = update.stat().st_size
    if private is not None:
        mechanisms = (private.privacy.of_one_example,) if blocks else ()
    return SignedUpdate(digest, size, header.samples, header.metrics, kinds, mechanisms, records)


def sign_vector(
    vector: np.ndarray, update: Path, task: Task, task_digest: bytes, contract: Contract, key: SigningKey
) -> SignedUpdate:
    """Write what the guard itself has computed, the one block of its contract, into a signed update.

    :param vector: one-dimensional.
    """
    (block,) = contract.blocks
    spec = spec_of(block.name, vector)
    header = _header(task, task_digest, contract, key, lay_out([(block.kind, spec)]))
    with new_update(update, header, contract, key) as own:
        own.write(block.name, raw_bytes(vector).data)
        digest = own.publish()
    kinds = {block.kind: {"blocks": 1, "bytes": spec.nbytes}}
    return SignedUpdate(digest, update.stat().st_size, 0, {}, kinds)


def _header(
    task: Task, task_digest: bytes, contract: Contract, key: SigningKey, blocks: tuple[TensorEntry, ...]
) -> UpdateHeader:
    """The header of an answer that states no samples and no metrics."""
    return UpdateHeader(
        job=task.job,
        task=task.task,
        round=task.round,
        sender=task.silo,
        key_id=key.verify_key.key_id,
        contract=bytes.fromhex(contract.digest()),
        task_digest=task_digest,
        samples=0,
        metrics={},
        blocks=blocks,
        algorithm=contract.algorithm,
    )


def require_undamaged(drop: Path, contract: Contract) -> None:
    """Check a drop that was complete before this guard asked for it.

    :raises FileDamaged: naming the file that is not what the trainer wrote.
    """
    damaged = damaged_file(drop, trainer_file, _max_bytes(contract))
    if damaged is not None:
        raise FileDamaged(
            f"{drop.name}/{damaged.name}: damaged, it is not what the trainer wrote; start the trainer again"
        )


def _max_bytes(contract: Contract) -> int:
    return contract.max_bytes() + MAX_BLOB_HEADER_BYTES + 8


def _require_small(file: BufferedReader, contract: Contract) -> None:
    limit = _max_bytes(contract)
    if os.fstat(file.fileno()).st_size > limit:
        raise PolicyRefused(f"tensors: larger than the {limit} bytes that the contract can fill")
