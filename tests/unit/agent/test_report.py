"""What the guard's container leaves when it ends: what has left the silo, however it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.receipts import MAX_LATEST, StatedReceipts
from fedsilo.errors import StorageFailed
from fedsilo.process import MAX_TERMINATION_BYTES, run_until_done
from fedsilo.silo.receipts import MAX_STATED_BYTES, receipts_document, receipts_of
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.report import ReceiptsReport

MODEL = {"model": {"blocks": 2, "bytes": 168}}


@pytest.fixture
def message(tmp_path: Path) -> Path:
    """An empty termination message, as a kubelet makes it."""
    path = tmp_path / "termination-log"
    path.touch()
    return path


def write_departure(log: AuditLog, round: int, kinds: dict[str, Any] = MODEL) -> None:
    facts = {"task": f"r{round}", "taskDigest": "a" * 64, "round": round, "phase": "train", "step": "train"}
    log.write("departure", **facts, digest=f"{round:064x}", bytes=200, samples=9, metrics={}, kinds=kinds)


def stated_receipts(message: Path) -> StatedReceipts:
    return StatedReceipts.model_validate(json.loads(message.read_bytes())["receipts"])


def test_every_line_is_reported_when_it_is_written(tmp_path: Path, message: Path) -> None:
    log = AuditLog(tmp_path / "audit", ReceiptsReport(message))
    assert (stated_receipts(message).updates, stated_receipts(message).audit_lines) == (0, 0)
    write_departure(log, 1)
    assert [(one.round, one.outcome) for one in stated_receipts(message).latest] == [
        (1, "sent, not acknowledged")
    ]
    log.write("acknowledged", task="r1", digest=f"{1:064x}")
    assert [(one.round, one.outcome) for one in stated_receipts(message).latest] == [(1, "accepted")]


def test_a_guard_that_starts_again_reports_the_whole_log(tmp_path: Path, message: Path) -> None:
    log = AuditLog(tmp_path / "audit")
    for round in (1, 2):
        write_departure(log, round)
    AuditLog(tmp_path / "audit", ReceiptsReport(message))
    found, log_says = stated_receipts(message), receipts_of(tmp_path)
    assert (found.updates, found.bytes, found.audit_lines) == (2, 400, 2)
    assert found.audit_hash == log_says.hash


@pytest.mark.parametrize("kinds", [MODEL, {f"kind{number}": MODEL["model"] for number in range(12)}])
def test_a_long_job_is_summarised_and_its_latest_updates_are_told(
    tmp_path: Path, message: Path, kinds: dict[str, Any]
) -> None:
    log = AuditLog(tmp_path / "audit", ReceiptsReport(message))
    for round in range(1, 41):
        write_departure(log, round, kinds)
    found = stated_receipts(message)
    assert (found.updates, found.bytes) == (40, 8000)
    assert 1 <= len(found.latest) <= MAX_LATEST
    assert [one.round for one in found.latest] == list(range(41 - len(found.latest), 41))
    assert len(json.dumps(receipts_document(receipts_of(tmp_path)))) <= MAX_STATED_BYTES


def test_an_error_leaves_the_receipts_too(tmp_path: Path, message: Path) -> None:
    report = ReceiptsReport(message)

    def body() -> None:
        write_departure(AuditLog(tmp_path / "audit", report), 1)
        raise StorageFailed("the disk is gone " * 1000)

    assert run_until_done(body, message, report.facts) == StorageFailed.exit_code
    left = json.loads(message.read_bytes())
    assert len(message.read_bytes()) <= MAX_TERMINATION_BYTES
    assert (left["reason"], left["receipts"]["updates"]) == ("StorageFailed", 1)
    assert left["message"].startswith("the disk is gone the disk is gone")


def test_a_shorter_message_leaves_nothing_of_a_longer_one(tmp_path: Path, message: Path) -> None:
    message.write_text("x" * 5000)
    AuditLog(tmp_path / "audit", ReceiptsReport(message))
    assert stated_receipts(message).updates == 0


def test_outside_of_a_container_nothing_is_written(tmp_path: Path) -> None:
    report = ReceiptsReport(tmp_path / "termination-log")
    write_departure(AuditLog(tmp_path / "audit", report), 1)
    assert (sorted(path.name for path in tmp_path.iterdir()), report.facts) == (["audit"], {})


def test_a_line_that_no_guard_of_this_version_writes_keeps_it_from_nothing(
    tmp_path: Path, message: Path
) -> None:
    log = AuditLog(tmp_path / "audit", ReceiptsReport(message))
    log.write("departure", task="r1")
    assert (stated_receipts(message).audit_lines, stated_receipts(message).updates) == (1, 0)
