"""The page of an institution without Kubernetes: what it says of a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.silo_status import HubAddress
from fedsilo.dashboard.institution import institution
from fedsilo.errors import ManifestInvalid
from fedsilo.files.json_files import write_json, write_with_digest
from fedsilo.institution.dashboard import DirectorySource
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.institution.silo_file import write_template
from fedsilo.wire import SigningKey
from fedsilo_agent.guard.audit import AuditLog
from tests.unit.agent.test_report import write_departure
from tests.unit.dashboard.institutions import agent, receipts
from tests.unit.dashboard.snapshots import Calendar

KEY = SigningKey.from_seed(b"k" * 32)


@pytest.fixture
def directory(tmp_path: Path) -> SiloDirectory:
    """Directory of a silo that has joined."""
    found = SiloDirectory(tmp_path / "silo")
    found.root.mkdir()
    found.prepare()
    KEY.save(found.key_file)
    public_key = KEY.verify_key.to_text()
    hub = HubAddress(url="https://hub.example", key=public_key)
    found.write_membership(SiloIdentity("silo-north/north", hub, "ab" * 32, public_key))
    write_template(found, "silo-north/north")
    return found


def put(directory: SiloDirectory, name: str, phase: str, **more: Any) -> str:
    """Record a part in a job in the directory; its uid."""
    record = agent(name, phase, Calendar(), 5) | more
    uid = str(record["metadata"]["uid"])
    directory.record(uid).parent.mkdir()
    write_with_digest(directory.record(uid), record)
    return uid


def shown_page(source: DirectorySource) -> Any:
    source.look()
    return institution(source.feed.take())


def conditions(source: DirectorySource) -> dict[str, str]:
    (silo,) = shown_page(source)["silos"]
    return {item["type"]: item["reason"] for item in silo["conditions"]}


def test_it_says_that_nobody_serves_and_what_the_file_lacks(directory: SiloDirectory) -> None:
    source = DirectorySource(directory)
    assert conditions(source) == {"Served": "NotServed", "SiloFileRead": "ManifestInvalid"}
    text = directory.silo_file.read_text()
    whole = text.replace("datasets: []", "datasets: [{name: digits, loader: 'sklearn:digits'}]")
    directory.silo_file.write_text(whole)
    assert conditions(source) == {"Served": "NotServed"}
    (silo,) = shown_page(source)["silos"]
    assert (silo["datasets"], silo["manualApproval"], silo["hub"]) == (
        ["digits"],
        True,
        "https://hub.example",
    )
    assert silo["fingerprint"] == KEY.verify_key.fingerprint
    write_with_digest(directory.leaving_file, {"statement": {}})
    assert conditions(source) == {"Served": "Left"}


def test_the_hubs_silence_is_told_with_its_reason(directory: SiloDirectory) -> None:
    contact = {
        "reached": False,
        "reason": "HubUnreachable",
        "message": "hub.example does not answer.",
        "since": "2026-11-21T12:00:00Z",
        "heard": None,
    }
    said = {"pid": 7, "since": "2026-11-21T11:00:00Z", "processes": {}, "fault": "", "hub": contact}
    write_json(directory.serving, said)
    with directory.hold_directory():
        found = conditions(DirectorySource(directory))
    assert (found["Served"], found["HubReached"]) == ("Served", "HubUnreachable")
    assert "HubReached" not in conditions(DirectorySource(directory)), "of a process that is no more"


def test_a_question_comes_with_the_command_of_the_directory_unless_it_was_taken_back(
    directory: SiloDirectory,
) -> None:
    put(directory, "atlas", "ApprovalPending")
    put(directory, "old", "ApprovalPending", gone="2026-11-21T12:00:00Z")
    found = shown_page(DirectorySource(directory))
    assert [(row["job"], row["gone"] is None) for row in found["agents"]] == [
        ("research/atlas", True),
        ("research/old", False),
    ]
    assert found["waiting"] == ["atlas-north-1a2b3c4d"]
    assert found["agents"][0]["approve"] == (
        f"fedsilo silo approve atlas-north-1a2b3c4d --dir {directory.root}"
    )


def test_what_has_left_is_what_the_audit_log_says_now(directory: SiloDirectory) -> None:
    uid = put(directory, "digits", "Running")
    source = DirectorySource(directory)
    assert shown_page(source)["agents"][0]["receipts"] is None
    log = AuditLog(directory.volume(uid).audit)
    version = source.feed.version
    for round in (1, 2):
        write_departure(log, round)
        told = shown_page(source)["agents"][0]["receipts"]
        assert (told["live"], told["updates"]) == (True, round)
    assert source.feed.version == version + 2
    assert shown_page(source)["left"] == {"updates": 2, "bytes": 400}
    assert source.feed.version == version + 2, "nothing has changed"


def test_a_log_that_another_part_has_taken_over_is_counted_once(directory: SiloDirectory) -> None:
    status = agent("digits", "Running", Calendar(), 5, receipts=receipts(2))["status"]
    put(directory, "digits", "Running", status=status, gone="2026-11-21T12:00:00Z")
    uid = put(directory, "again", "Running")
    log = AuditLog(directory.volume(uid).audit)
    for round in (1, 2):
        write_departure(log, round)
    assert shown_page(DirectorySource(directory))["left"] == {"updates": 2, "bytes": 400}


def test_a_log_that_was_changed_gives_no_receipts_and_hides_nothing_else(
    directory: SiloDirectory,
) -> None:
    uid = put(directory, "digits", "Running")
    write_departure(AuditLog(directory.volume(uid).audit), 1)
    path = directory.volume(uid).audit / "log.jsonl"
    path.write_text(path.read_text().replace('"bytes": 200', '"bytes": 201'))
    source = DirectorySource(directory)
    row = shown_page(source)["agents"][0]
    assert (row["job"], row["receipts"]) == ("research/digits", None)
    assert conditions(source)["AuditLogWhole"] == "AuditBroken"


def test_a_directory_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match="no directory of a silo that has joined"):
        DirectorySource(SiloDirectory(tmp_path))
