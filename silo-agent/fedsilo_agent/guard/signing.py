"""From what may leave to a signed update, which only the guard writes, in one pass."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np

from fedsilo.silo.release import EgressSummary, Release, ReleaseRules, release
from fedsilo.transforms.guard import AnsweredTask
from fedsilo.wire import Contract, SigningKey, UpdateHeader, UpdateWriter, lay_out, new_update
from fedsilo.wire.tensors import raw_bytes, spec_of
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.task_source import VerifiedTask

SignedUpdate = Release[str]
"""What is about to leave, and the digest of its file."""


def sign_reply(
    reply: DroppedReply, path: Path, verified: VerifiedTask, rules: ReleaseRules, key: SigningKey
) -> SignedUpdate:
    """Copy a drop into a signed update, piece by piece and each byte once.

    :raises PolicyRefused: naming the block and what is wrong with it.
    """
    new_copy = partial(_update, path, verified, reply.contract, key)
    task = verified.task
    answered = AnsweredTask(task.task, task.step, task.phase, task.round)
    return release(answered, reply.contract, reply, rules, new_copy)


def sign_vector(
    vector: np.ndarray, path: Path, verified: VerifiedTask, contract: Contract, key: SigningKey
) -> SignedUpdate:
    """Write what the guard itself has computed, the one block of its contract, into a signed update.

    :param vector: one-dimensional.
    """
    (block,) = contract.blocks
    leaving = EgressSummary(((block.kind, spec_of(block.name, vector)),))
    with _update(path, verified, contract, key, leaving) as own:
        own.write(block.name, raw_bytes(vector).data)
        return Release(leaving, own.publish())


def _update(
    path: Path, verified: VerifiedTask, contract: Contract, key: SigningKey, leaving: EgressSummary
) -> AbstractContextManager[UpdateWriter]:
    task = verified.task
    header = UpdateHeader(
        job=task.job,
        task=task.task,
        round=task.round,
        sender=task.silo,
        key_id=key.verify_key.key_id,
        contract=bytes.fromhex(contract.digest()),
        task_digest=verified.digest,
        samples=leaving.samples,
        metrics=leaving.metrics,
        blocks=lay_out(leaving.blocks),
        algorithm=contract.algorithm,
    )
    return new_update(path, header, contract, key)
