"""The audit log is bounded, survives a full disk, and is what the guard remembers by."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path

import pytest

from fedsilo.silo.audit_chain import AuditBroken, line_digest, text_of
from fedsilo_agent.guard import audit
from fedsilo_agent.guard.audit import DAY_SECONDS, AuditLog, verify
from fedsilo_agent.guard.text import MAX_TEXT_BYTES, bounded_text


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path)


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\U0001f600", "\x00", '"', "\udc80"])
def test_a_text_of_megabytes_takes_four_kilobytes_of_a_line(letter: str, log: AuditLog) -> None:
    log.write("refused", task="r1", detail=letter * (1 << 20))
    assert log.path.stat().st_size < MAX_TEXT_BYTES + 500
    assert verify(log.path)[0] == 1
    detail = json.loads(log.path.read_text())["detail"]
    assert detail.endswith("... (cut)")
    assert detail == bounded_text(letter * (1 << 20)) == bounded_text(detail), (
        "what is recorded is what is reported"
    )


@pytest.mark.parametrize(
    "text", ["", "as it is", "x" * MAX_TEXT_BYTES, "\U0001f600" * (MAX_TEXT_BYTES // 12)]
)
def test_a_text_that_fits_stays_as_it_is(text: str) -> None:
    assert bounded_text(text) == text


def test_refusals_of_a_day_add_five_megabytes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(audit, "append_durably", _append)
    log = AuditLog(tmp_path)
    while now < DAY_SECONDS:
        log.write("task-refused", code="malformed", detail="x" * 100_000)
        now += max(0.001, log.allowance.seconds_left())
    assert 4.9 * (1 << 20) < log.path.stat().st_size < 5.1 * (1 << 20)


def _append(path: Path, line: str) -> None:
    with path.open("ab") as file:
        file.write(line.encode() + b"\n")


def test_departures_need_no_allowance(log: AuditLog) -> None:
    before = log.allowance.seconds_left()
    log.write("departure", task="r1", digest="0" * 64)
    log.write("acknowledged", task="r1", digest="0" * 64)
    log.allowance.spend(4 << 20)
    assert log.allowance.seconds_left() == before == 0


def test_a_full_disk_leaves_no_half_of_a_line(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write("departure", task="r1", digest="1" * 64)

    def write_partial_line(path: Path, line: str) -> None:
        with path.open("ab") as file:
            file.write(line.encode()[:50])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(audit, "append_durably", write_partial_line)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                log.write("acknowledged", task="r1", digest="1" * 64)
    assert log.record.acknowledged_before("") is None
    log.write("acknowledged", task="r1", digest="1" * 64)
    assert verify(log.path)[0] == 2


def test_the_log_tells_a_restarted_guard_what_was(log: AuditLog) -> None:
    log.write("signature", tensors=2, digest="5" * 64)
    for task in ("r1", "r2"):
        log.write("departure", task=task, digest=task * 32)
    for task in ("r1", "r2", "r2"):
        log.write("acknowledged", task=task, digest=task * 32)
    found = AuditLog(log.path.parent).record
    assert found == log.record
    assert found.signature == "5" * 64
    assert found.acknowledged_before("r3") == "r2"
    assert found.acknowledged_before("r2") == "r1", "r2 may be given again, and belongs to the state after r1"
    assert found.departures == {"r1": "r1" * 32, "r2": "r2" * 32}


@pytest.mark.parametrize("lines", [0, 2])
@pytest.mark.parametrize("zeros", [slice(0, 60), slice(20, 70), slice(-40, -1), slice(-40, None)])
def test_a_last_line_in_which_a_power_cut_left_zeros_is_cut_off(
    lines: int, zeros: slice, log: AuditLog
) -> None:
    for number in range(lines):
        log.write("departure", task=f"r{number}", digest="1" * 64)
    before = log.path.read_bytes() if lines else b""
    log.write("departure", task="torn", digest="2" * 64)
    torn = bytearray(log.path.read_bytes()[len(before) :])
    torn[zeros] = bytes(len(torn[zeros]))
    log.path.write_bytes(before + torn)
    found = AuditLog(log.path.parent)
    assert log.path.read_bytes() == before
    assert "torn" not in found.record.departures
    found.write("acknowledged", task="r1", digest="1" * 64)
    assert verify(log.path)[0] == lines + 1


def test_zeros_in_a_line_before_the_last_are_no_power_cut(log: AuditLog) -> None:
    """Lines before the last were whole on the disk before the next one was written."""
    for task in ("r1", "r2"):
        log.write("departure", task=task, digest="1" * 64)
    content = bytearray(log.path.read_bytes())
    content[10:30] = bytes(20)
    log.path.write_bytes(content)
    with pytest.raises(AuditBroken, match="line 1 does not follow"):
        AuditLog(log.path.parent)
    assert log.path.read_bytes() == content


def test_a_line_that_was_written_anew_is_found_at_the_next(log: AuditLog) -> None:
    """Its own digest is right; that of the line before it, which the next one has, is not."""
    for task in ("r1", "r2"):
        log.write("departure", task=task, digest="1" * 64)
    first, second = log.path.read_text().splitlines()
    line = {**json.loads(first), "task": "r7"}
    del line["hash"]
    log.path.write_text(f"{text_of(line, line_digest(line))}\n{second}\n")
    with pytest.raises(AuditBroken, match="line 2 does not follow"):
        AuditLog(log.path.parent)


def test_a_log_that_is_broken_keeps_its_torn_line(log: AuditLog) -> None:
    log.write("signature", digest="a")
    content = log.path.read_bytes().replace(b"signature", b"departure") + b'{"torn'
    log.path.write_bytes(content)
    with pytest.raises(AuditBroken, match="line 1 does not follow"):
        AuditLog(log.path.parent)
    assert log.path.read_bytes() == content, "a person has to look at it as it was found"


def test_what_has_the_logs_name_and_is_none_breaks_it(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(AuditBroken, match=r"log\.jsonl: cannot be read"):
        AuditLog(tmp_path)
