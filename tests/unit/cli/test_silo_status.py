"""What `fedsilo silo status` says of the silo and its hub is true, and the command says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedsilo.api.timestamps import timestamp
from fedsilo.cli.main import main
from fedsilo.errors import FedsiloError, Problem
from fedsilo.files.json_files import write_json, write_with_digest
from fedsilo.hub.contact import Contact
from fedsilo.hub.failures import Unreachable
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.serving import contact_of
from tests.unit.institution.parts import KEY, directory

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
ONE, TWO = NOON.replace(hour=13), NOON.replace(hour=14)
FINGERPRINT = KEY.verify_key.fingerprint
UNREACHABLE_ERROR = Unreachable(
    "hub.example:443 refuses connections; ask the hub whether its gateway runs there"
)
PENDING_PROBLEM = Problem("not-accepted", "the consortium has not accepted the key yet")
REVOKED_PROBLEM = Problem(
    "unknown-sender", "silo silo-north/north was revoked by the consortium; ask for an invitation"
)


@pytest.fixture
def silo_directory(tmp_path: Path) -> SiloDirectory:
    return directory(tmp_path / "silo")


def latest_contact(*results: tuple[datetime, FedsiloError | None]) -> Contact:
    """What a process that serves makes of one request after the other."""
    known = None
    for now, error in results:
        known = Contact.of(error, known, FINGERPRINT, now)
    assert known is not None
    return known


def leave_word(silo_directory: SiloDirectory, contact: Contact | None) -> None:
    said = {"pid": os.getpid(), "since": timestamp(NOON), "processes": {}, "fault": ""}
    write_json(silo_directory.serving, said | {"hub": contact_of(contact)})


@contextmanager
def serve_silo(silo_directory: SiloDirectory, contact: Contact | None) -> Iterator[None]:
    leave_word(silo_directory, contact)
    with silo_directory.hold_directory():
        yield


def status(silo_directory: SiloDirectory, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines about silo and hub, but for the first, which names them."""
    assert main(["silo", "status", "--dir", str(silo_directory.root)]) == 0
    return capsys.readouterr().out.partition("\n\n")[0].splitlines()[1:]


def test_before_it_is_served_it_says_what_to_run(
    silo_directory: SiloDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = status(silo_directory, capsys)
    assert line == (
        "nobody serves it, so nothing runs and the hub is not asked: run fedsilo silo serve --dir "
        f"{silo_directory.root}"
    )


@pytest.mark.parametrize(
    ("contact", "said"),
    [
        (None, "the hub is about to be asked"),
        (
            latest_contact((NOON, None)),
            "the hub is reached since 2026-07-01T12:00:00Z: The hub knows this silo by",
        ),
        (
            latest_contact((NOON, None), (ONE, UNREACHABLE_ERROR), (TWO, UNREACHABLE_ERROR)),
            "the hub is not reached since 2026-07-01T13:00:00Z; it answered last at 2026-07-01T12:00:00Z: hub.example",
        ),
        (
            latest_contact((NOON, UNREACHABLE_ERROR), (ONE, PENDING_PROBLEM), (TWO, PENDING_PROBLEM)),
            "the hub answers, but refuses this silo's requests since 2026-07-01T13:00:00Z: The consortium's office has "
            f"not accepted the key with the fingerprint {FINGERPRINT} yet; tell it the fingerprint by telephone.",
        ),
        (
            latest_contact((NOON, None), (ONE, REVOKED_PROBLEM)),
            "the hub answers, but refuses this silo's requests since 2026-07-01T13:00:00Z: unknown-sender: silo "
            "silo-north/north was revoked by the consortium; ask for an invitation.",
        ),
    ],
)
def test_while_it_is_served_it_says_how_the_hub_answers(
    contact: Contact | None, said: str, silo_directory: SiloDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_silo(silo_directory, contact):
        process, hub = status(silo_directory, capsys)
    assert process.startswith(f"process {os.getpid()} has served it for ")
    assert hub.startswith(said)


@pytest.mark.parametrize(
    ("contact", "said"),
    [
        (latest_contact((NOON, None)), []),
        (
            latest_contact((NOON, UNREACHABLE_ERROR)),
            ["before that, the hub was not reached since 2026-07-01T12:00:00Z: hub.example"],
        ),
        (
            latest_contact((NOON, PENDING_PROBLEM)),
            [
                "before that, the hub answered, but refused this silo's requests since 2026-07-01T12:00:00Z: The"
            ],
        ),
    ],
)
def test_what_an_earlier_process_found_is_told_as_past(
    contact: Contact, said: list[str], silo_directory: SiloDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_word(silo_directory, contact)
    first, *rest = status(silo_directory, capsys)
    assert first.startswith("nobody serves it")
    assert [line.startswith(text) for line, text in zip(rest, said, strict=True)] == [True] * len(said)


def test_a_silo_that_has_left_is_not_to_be_served(
    silo_directory: SiloDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_word(silo_directory, latest_contact((NOON, UNREACHABLE_ERROR)))
    write_with_digest(silo_directory.leaving_file, {"statement": {}})
    (line,) = status(silo_directory, capsys)
    assert line.startswith("it has left the hub: to take part again, ask its office for an invitation")
