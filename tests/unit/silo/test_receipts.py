"""What left a silo, read from its audit log: only from one that holds, and each update once."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedsilo.cli.main import main
from fedsilo.errors import ManifestInvalid
from fedsilo.silo import audit_chain
from fedsilo.silo.audit_chain import FILE, AuditBroken, line_digest
from fedsilo.silo.receipts import GrowingReceipts, receipts_document, receipts_of, volumes
from fedsilo_agent.guard.audit import AuditLog

MODEL = {"model": {"blocks": 2, "bytes": 168}}
BOTH_KINDS = MODEL | {"class_counts": {"blocks": 3, "bytes": 24}}


def write_departure(log: AuditLog, task: str, digit: str, kinds: dict[str, Any], **more: Any) -> None:
    facts = {"task": task, "taskDigest": "a" * 64, "round": 1, "phase": "train", "step": "train"}
    log.write(
        "departure", **(facts | more), digest=digit * 64, bytes=1000, samples=10, metrics={}, kinds=kinds
    )


def filled_log(volume: Path) -> AuditLog:
    """The log of a silo that answered twice, was too late once, and is sending."""
    log = AuditLog(volume / "audit")
    log.write("signature", tensors=2, digest="5" * 64, isolation="none")
    write_departure(log, "r1", "1", MODEL)
    write_departure(log, "r1", "1", MODEL)
    log.write("acknowledged", task="r1", digest="1" * 64)
    write_departure(log, "e1", "2", {}, phase="evaluate", step="evaluate")
    log.write("acknowledged", task="e1", digest="2" * 64)
    write_departure(log, "r2", "3", BOTH_KINDS, round=2)
    log.write("not-accepted", task="r2", code="round-closed")
    log.write("refused", task="r3", round=3, detail="no")
    write_departure(log, "r4", "4", MODEL, round=4)
    return log


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    filled_log(tmp_path / "north")
    return tmp_path / "north"


def test_each_update_has_one_receipt_that_says_what_became_of_it(volume: Path) -> None:
    found = receipts_of(volume)
    seen = [(each.round, each.phase, each.digest[0], each.blocks, each.outcome) for each in found.departures]
    assert seen == [
        (1, "train", "1", 2, "accepted"),
        (1, "evaluate", "2", 0, "accepted"),
        (2, "train", "3", 5, "round-closed"),
        (4, "train", "4", 2, "sent, not acknowledged"),
    ]
    assert (found.silo, found.lines, found.bytes) == ("north", 10, 4000)
    assert found.hash == json.loads((volume / "audit" / "log.jsonl").read_text().splitlines()[-1])["hash"]


def test_a_line_that_is_being_written_does_not_count(volume: Path) -> None:
    before = receipts_of(volume)
    with (volume / "audit" / "log.jsonl").open("a") as file:
        file.write('{"event": "departure", ')
    assert receipts_of(volume) == before


def test_a_line_of_an_earlier_guard_has_its_step_as_phase(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit")
    log.write("departure", task="r1", round=1, step="train", digest="1" * 64, bytes=1, samples=1, kinds=MODEL)
    (receipt,) = receipts_of(tmp_path).departures
    assert receipt.phase == "train"


@pytest.mark.parametrize("number", range(10))
def test_a_chain_that_is_broken_gives_no_receipts(number: int, volume: Path) -> None:
    path = volume / "audit" / "log.jsonl"
    lines = path.read_text().splitlines()
    lines[number] = lines[number].replace('"time": "2', '"time": "1')
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AuditBroken, match=f"line {number + 1} does not follow"):
        receipts_of(volume)


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": 7},
        {"kinds": {"model": {"blocks": float("inf"), "bytes": 1}}},
        {"round": None},
        {"digest": None, "event": "acknowledged", "task": []},
        {"event": "not-accepted", "code": None, "task": None},
        {"event": []},
    ],
)
def test_a_forged_line_in_a_chain_that_holds_is_an_error_or_harmless(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_departure(AuditLog(tmp_path / "audit"), "r1", "1", MODEL)
    path = tmp_path / "audit" / "log.jsonl"
    line = json.loads(path.read_text()) | change
    del line["hash"]
    path.write_text(json.dumps(line | {"hash": line_digest(line)}, sort_keys=True) + "\n")
    assert main(["silo", "receipts", str(tmp_path)]) in (0, 5)
    assert "Traceback" not in capsys.readouterr().err


def test_a_directory_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match=r"neither audit/log\.jsonl nor silos/<name>/audit/log\.jsonl"):
        volumes(tmp_path)


def test_a_table_for_each_silo_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled_log(tmp_path / "silos" / "north")
    AuditLog(tmp_path / "silos" / "south" / "audit").write("finished", succeeded=True)
    (tmp_path / "silos" / "west").mkdir()
    assert main(["silo", "receipts", str(tmp_path)]) == 0
    north, south = capsys.readouterr().out.split("\n\n")
    summary, *table = north.splitlines()
    assert summary.startswith(
        "silo north: 4 updates, 4000 bytes; the audit log holds, 10 lines, the last one's hash"
    )
    assert [row.split()[:7] for row in table] == [
        ["ROUND", "PHASE", "STEP", "KIND", "BLOCKS", "BYTES", "DIGEST"],
        ["1", "train", "train", "model", "2", "168", "1" * 12],
        ["1", "evaluate", "evaluate", "scalars", "0", "0", "2" * 12],
        ["2", "train", "train", "class_counts", "3", "24", "3" * 12],
        ["2", "train", "train", "model", "2", "168", "3" * 12],
        ["4", "train", "train", "model", "2", "168", "4" * 12],
    ]
    assert table[3].endswith("round-closed")
    assert south.startswith("silo south: 0 updates, 0 bytes; the audit log holds, 1 line, ")


def test_one_json_object_holds_all_of_it(volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["silo", "receipts", str(volume), "--json"]) == 0
    (silo,) = json.loads(capsys.readouterr().out)["silos"]
    assert (silo["silo"], silo["auditLines"], silo["bytes"]) == ("north", 10, 4000)
    assert silo["departures"][2] | {"time": ""} == {
        "time": "",
        "round": 2,
        "phase": "train",
        "step": "train",
        "task": "r2",
        "kinds": BOTH_KINDS,
        "bytes": 1000,
        "samples": 10,
        "digest": "3" * 64,
        "outcome": "round-closed",
    }


def test_a_broken_log_ends_with_5_and_names_the_line(
    volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = volume / "audit" / "log.jsonl"
    path.write_text(path.read_text().replace("r2", "r9", 1))
    assert main(["silo", "receipts", str(volume)]) == 5
    said = capsys.readouterr()
    assert said.out == ""
    assert "log.jsonl: line 7 does not follow from the line before it" in said.err


def test_a_silo_without_kubernetes_has_a_table_for_each_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agents").mkdir()
    assert main(["silo", "receipts", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing has left: there is no audit log yet\n"
    for uid in ("u1", "u2"):
        filled_log(tmp_path / "agents" / uid / "volume")
    spec = {"silo": {"name": "north"}, "job": {"namespace": "research", "name": "digits"}}
    (tmp_path / "agents" / "u1" / "record.json").write_text(json.dumps({"spec": spec}))
    assert main(["silo", "receipts", str(tmp_path)]) == 0
    known, unknown = capsys.readouterr().out.split("\n\n")
    assert known.startswith("silo north, job research/digits: 4 updates, 4000 bytes;")
    assert unknown.startswith("silo u2: 4 updates, 4000 bytes;")
    assert main(["silo", "receipts", "--dir", str(tmp_path), "--json"]) == 0
    silos = json.loads(capsys.readouterr().out)["silos"]
    assert [(one["silo"], one.get("job")) for one in silos] == [("north", "research/digits"), ("u2", None)]


def test_a_log_that_grows_is_read_once_however_often_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, checked = tmp_path / "north", [0]
    log = filled_log(volume)
    growing = GrowingReceipts(volume)

    def count_digest(line: Mapping[str, Any]) -> str:
        checked[0] += 1
        return line_digest(line)

    with monkeypatch.context() as patch:
        patch.setattr(audit_chain, "line_digest", count_digest)
        for number in range(50):
            write_departure(log, f"s{number}", f"{number % 10}", MODEL, round=5 + number)
            growing.read()
    assert checked == [60], "each line once"
    assert receipts_document(growing.read()) == receipts_document(receipts_of(volume))
    path = volume / "audit" / "log.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"torn')
    assert growing.read().lines == 60
    path.write_bytes(whole + whole)
    for _ in range(2):
        with pytest.raises(AuditBroken, match="line 61 does not follow"):
            growing.read()
    path.write_bytes(whole)
    assert growing.read().lines == 60
    path.unlink()
    assert growing.read().lines == 0
    filled_log(volume)
    assert growing.read().lines == 10


def test_a_link_in_place_of_the_log_is_not_read(tmp_path: Path) -> None:
    filled_log(tmp_path / "north")
    growing = GrowingReceipts(tmp_path / "north")
    assert growing.read().lines == 10
    path = tmp_path / "north" / "audit" / "log.jsonl"
    path.rename(tmp_path / "log.jsonl")
    path.symlink_to(tmp_path / "log.jsonl")
    with pytest.raises(AuditBroken, match="is a link"):
        growing.read()


@pytest.mark.parametrize("start", [b"", b"{}\n"])
def test_a_log_of_a_terabyte_is_refused_at_its_first_line_without_end(start: bytes, tmp_path: Path) -> None:
    log = tmp_path / "audit" / FILE
    log.parent.mkdir()
    log.write_bytes(start)
    os.truncate(log, 1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(AuditBroken, match="has a line that no guard writes"):
            receipts_of(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_log_that_is_no_plain_file_is_refused(make: Callable[[Path], object], tmp_path: Path) -> None:
    log = tmp_path / "audit" / FILE
    log.parent.mkdir()
    make(log)
    with pytest.raises(AuditBroken, match="cannot be read"):
        receipts_of(tmp_path)
