"""Attacks on an update: whatever is wrong with one is refused with its own code, and the round stays open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedsilo.wire import Contract, ExpectedBlock
from tests.integration.service.client import (
    FetchedTask,
    contents_of,
    decode_signed,
    forge,
    header_of,
    with_values,
)
from tests.integration.service.conftest import Job
from tests.updates import digest_of


@dataclass(frozen=True)
class Target:
    """North's open task of round 2, an honest update for it, and the one of round 1.

    :param first: the update that was accepted in round 1.
    """

    job: Job
    given: FetchedTask
    honest: bytes
    first: bytes
    first_task: str

    def forged_update(self, **changes: Any) -> bytes:
        """The honest update with fields of its header changed, signed by north all the same."""
        header = dataclasses.replace(header_of(self.honest), **changes)
        return forge(self.job.north.key, header, contents_of(self.honest))

    def mismatched_update(self, contract: Contract, arrays: list[np.ndarray]) -> bytes:
        """An update of other blocks that claims to be of the right contract."""
        blocks = list(zip(contract.blocks, arrays, strict=True))
        other = self.job.north.update(self.given, contract=contract, blocks=blocks)
        header = dataclasses.replace(header_of(other), contract=bytes.fromhex(self.given.contract.digest()))
        return forge(self.job.north.key, header, contents_of(other))

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.given.tree[block.name] for block in self.given.contract.blocks]


@pytest.fixture(scope="module")
def target(job: Job) -> Target:
    given = job.north.fetch_task()
    first = job.north.update(given)
    assert job.north.patch(given.task.task, first).status == 201
    job.south.answer(job.south.fetch_task())
    second = job.north.fetch_task(after=given.task.task)
    return Target(job, second, job.north.update(second), first, given.task.task)


def changed_byte(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def in_signature(target: Target) -> bytes:
    _, signature = decode_signed(target.honest)
    return changed_byte(target.honest, target.honest.index(signature))


def blocks_with(contract: Contract, place: int, **changes: Any) -> Contract:
    blocks = list(contract.blocks)
    blocks[place] = dataclasses.replace(blocks[place], **changes)
    return Contract(tuple(blocks), contract.metrics)


def wrong_shape(target: Target) -> bytes:
    arrays = target.arrays
    arrays[0] = np.ascontiguousarray(arrays[0].T)
    return target.mismatched_update(blocks_with(target.given.contract, 0, shape=arrays[0].shape), arrays)


def wrong_dtype(target: Target) -> bytes:
    arrays = target.arrays
    arrays[0] = arrays[0].astype(np.float64)
    return target.mismatched_update(blocks_with(target.given.contract, 0, dtype="float64"), arrays)


def wrong_kind(target: Target) -> bytes:
    return target.mismatched_update(
        blocks_with(target.given.contract, 0, kind="averaged_gradients"), target.arrays
    )


def unexpected_block(target: Target) -> bytes:
    contract = target.given.contract
    smuggled = ExpectedBlock("model", "patients", (4,), "float32")
    wider = Contract((*contract.blocks, smuggled), contract.metrics)
    return target.mismatched_update(wider, [*target.arrays, np.arange(4, dtype=np.float32)])


def blocks_out_of_order(target: Target) -> bytes:
    contract = target.given.contract
    return target.mismatched_update(Contract(contract.blocks[::-1], contract.metrics), target.arrays[::-1])


def missing_block(target: Target) -> bytes:
    contract = target.given.contract
    return target.mismatched_update(Contract(contract.blocks[1:], contract.metrics), target.arrays[1:])


def unexpected_metric(target: Target) -> bytes:
    return target.forged_update(metrics={"loss": 0.5, "patients": 41.0})


ATTACKS: dict[str, tuple[Callable[[Target], bytes], str]] = {
    "a byte of the header is changed": (lambda t: changed_byte(t.honest, 40), "signature-invalid"),
    "a byte of the signature is changed": (in_signature, "signature-invalid"),
    "a byte of the last block is changed": (
        lambda t: changed_byte(t.honest, -1 % len(t.honest)),
        "digest-mismatch",
    ),
    "the first byte is no msgpack bin": (lambda t: b"\x80" + t.honest[1:], "malformed"),
    "its end is cut off": (lambda t: t.honest[:-3], "truncated"),
    "its header is cut off": (lambda t: t.honest[:60], "truncated"),
    "bytes follow its end": (lambda t: t.honest + b"rows of a table", "too-long"),
    "its header is larger than any": (lambda _t: b"\xc6\x00\x40\x00\x01" + bytes(64), "too-long"),
    "replayed from an earlier round": (lambda t: t.first, "wrong-task"),
    "replayed under the name of this task": (lambda t: t.forged_update(round=1), "wrong-round"),
    "signed by another silo": (
        lambda t: forge(t.job.south.key, header_of(t.honest), contents_of(t.honest)),
        "signature-invalid",
    ),
    "another key is named": (lambda t: t.forged_update(key_id="0" * 16), "signature-invalid"),
    "of another job": (lambda t: t.forged_update(job="11111111-2222-3333-4444-555555555555"), "wrong-job"),
    "of another task": (lambda t: t.forged_update(task="r00002-train-south"), "wrong-task"),
    "in the name of another silo": (lambda t: t.forged_update(sender="silo-south/south"), "wrong-sender"),
    "made under another contract": (lambda t: t.forged_update(contract=bytes(32)), "contract-mismatch"),
    "made for other bytes of the task": (lambda t: t.forged_update(task_digest=bytes(32)), "task-mismatch"),
    "a value is not a number": (lambda t: with_values(t.job.north.key, t.honest, np.nan), "not-finite"),
    "a value is infinite": (lambda t: with_values(t.job.north.key, t.honest, np.inf), "not-finite"),
    "a block has another shape": (wrong_shape, "wrong-shape"),
    "a block has another dtype": (wrong_dtype, "wrong-dtype"),
    "a block has another kind": (wrong_kind, "wrong-kind"),
    "a block is smuggled in": (unexpected_block, "unexpected-block"),
    "its blocks are out of order": (blocks_out_of_order, "unexpected-block"),
    "a block is left out": (missing_block, "missing-block"),
    "a metric is smuggled in": (unexpected_metric, "unexpected-metric"),
    "a metric overflows when it is squared": (
        lambda t: t.forged_update(metrics={"loss": 1.7e308}),
        "out-of-range",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_update_is_refused_when(attack: str, target: Target) -> None:
    make, code = ATTACKS[attack]
    task = target.given.task.task
    target.job.expect(code, target.job.north.patch(task, make(target)))
    assert target.job.north.head(task).headers["Upload-Offset"] == "0", "something half-written stayed"


def test_more_bytes_than_announced_are_refused(target: Target) -> None:
    length = str(len(target.honest) - 1)
    answer = target.job.north.patch(target.given.task.task, target.honest, Upload_Length=length)
    target.job.expect("too-long", answer)


def test_another_digest_than_announced_is_refused(target: Target) -> None:
    answer = target.job.north.patch(target.given.task.task, target.honest, Upload_Digest="0" * 64)
    target.job.expect("digest-mismatch", answer)


def test_another_update_for_a_closed_round_is_refused_and_the_accepted_one_confirmed(target: Target) -> None:
    north, task = target.job.north, target.first_task
    assert north.patch(task, target.first).status == 200
    target.job.expect("already-accepted", north.patch(task, target.honest))


def test_the_first_durable_update_of_a_task_wins(target: Target) -> None:
    north, task = target.job.north, target.given.task.task
    digest = digest_of(target.honest)
    assert north.patch(task, target.honest).status == 201
    again = north.patch(task, target.honest)
    assert (again.status, again.body) == (
        200,
        b'{"task": "%s", "digest": "%s"}' % (task.encode(), digest.encode()),
    )
    assert north.head(task, digest).headers["Upload-Complete"] == "?1"
    target.job.expect("already-accepted", north.patch(task, target.forged_update(samples=1_000_000)))
    target.job.expect("already-accepted", north.head(task))


def test_another_silo_is_not_told_of_the_answer(target: Target) -> None:
    south, report = target.job.south, b'{"reason": "Slow", "message": ""}'
    for task in (target.first_task, target.given.task.task):
        target.job.expect("wrong-sender", south.head(task))
        target.job.expect("wrong-sender", south.patch(task, target.honest))
        target.job.expect("wrong-sender", south.fail(task, report))


def test_every_refusal_was_reported_and_the_job_reaches_its_model(target: Target) -> None:
    job = target.job
    job.assert_all_refusals_were_reported()
    job.south.answer(job.south.fetch_task())
    late = job.north.task(after=target.given.task.task)
    assert late.step == "evaluate"
    for silo in (job.north, job.south):
        silo.answer(silo.fetch_task())
    assert job.north.task(late.task).step == "finish"
    job.expect("job-finished", job.north.patch("r00009-train-north", target.honest))
    assert job.south.task(after="").settings["succeeded"] is True
    assert job.aggregator.exit_code() == 0
    assert job.site.status()["phase"] == "Complete"
