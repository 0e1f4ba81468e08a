"""What people and commands write into a silo's directory, and what is made of it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.silo_policy import Approval
from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import FedsiloError, FileDamaged, ManifestInvalid
from fedsilo.files import durable
from fedsilo.hub import client
from fedsilo.institution import leaving
from fedsilo.institution.approvals import MAX_APPROVALS, merge_approvals, read_approvals, write_approval
from fedsilo.institution.deciding import decide
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.leaving import leave
from fedsilo.institution.rotating import is_own, rotate_key
from fedsilo.institution.silo_file import WatchedSilo, read_silo, write_template
from fedsilo.silo.leaving import read_leaving
from fedsilo.silo.rotation import keys_since
from fedsilo.wire import SigningKey
from tests.paths import ROOT
from tests.unit.institution.parts import HUB_KEY, KEY, MEMBER, SILO, directory, write_silo
from tests.unit.institution.test_executor import Crash, crash_at

PUBLIC_KEY = KEY.verify_key.to_text()


def entry(job: str = "one", decision: str = "Approved") -> Approval:
    return Approval.model_validate(
        {"job": job, "specDigest": "0" * 64, "proposal": "1" * 64, "decision": decision}
    )


def test_a_template_is_a_silo_but_for_its_datasets(tmp_path: Path) -> None:
    place = SiloDirectory(tmp_path)
    assert write_template(place, SILO)
    with pytest.raises(FedsiloError, match=r"spec\.datasets.*list the datasets"):
        read_silo(place, SILO, PUBLIC_KEY)
    text = place.silo_file.read_text().replace(
        "datasets: []", "datasets: [{name: d, loader: 'sklearn:digits'}]"
    )
    place.silo_file.write_text(text)
    assert read_silo(place, SILO, PUBLIC_KEY).spec.policy.manual_approval
    assert not write_template(place, SILO)
    assert place.silo_file.read_text() == text
    # What it shows as comments is right, too.
    for name in ("methods", "jobNamespaces", "payloadKinds", "maxRounds", "maxBytesPerJob", "notAfter"):
        assert f"    # {name}: " in text
        text = text.replace(f"    # {name}: ", f"    {name}: ")
    place.silo_file.write_text(text)
    assert read_silo(place, SILO, PUBLIC_KEY).spec.policy.job_namespaces == ("federation",)


def test_a_silo_file_of_another_silo_is_refused(tmp_path: Path) -> None:
    place = directory(tmp_path)
    write_silo(place, name="south")
    with pytest.raises(ManifestInvalid, match="joined as silo-north/north; write that name"):
        read_silo(place, SILO, PUBLIC_KEY)


def test_a_file_that_is_not_understood_changes_nothing_until_it_is_mended(tmp_path: Path) -> None:
    place = directory(tmp_path, {"maxRounds": 3})
    watched = WatchedSilo(place, MEMBER, PUBLIC_KEY)
    assert not watched.changed()
    whole = place.silo_file.read_text()
    for broken in (whole.replace("maxRounds", "maxRound"), "", "a: ["):
        place.silo_file.write_text(broken)
        assert not watched.changed()
        assert str(place.silo_file) in watched.fault
        assert watched.silo.spec.policy.max_rounds == 3
    place.silo_file.unlink()
    assert not watched.changed()
    write_silo(place, {"maxRounds": 4})
    assert watched.changed()
    assert (watched.fault, watched.silo.spec.policy.max_rounds) == ("", 4)
    place.approvals.write_text("approvals: 7")
    assert not watched.changed()
    assert str(place.approvals) in watched.fault


def test_a_decision_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    place = directory(tmp_path)
    write_approval(place, entry())
    write_approval(place, entry("two"))
    write_approval(place, entry(decision="Refused"))
    assert [(one.job, one.decision) for one in read_approvals(place)] == [
        ("two", "Approved"),
        ("one", "Refused"),
    ]
    kept = [one.model_dump(by_alias=True, exclude_none=True) for one in read_approvals(place)]
    filled = [kept[0] | {"job": str(number)} for number in range(MAX_APPROVALS - 3)]
    place.approvals.write_text(json.dumps({"approvals": [*kept, *filled]}))
    write_approval(place, entry("the last"))
    with pytest.raises(ManifestInvalid, match="remove those of jobs that are gone"):
        write_approval(place, entry("too many"))
    write_approval(place, entry("two", "Refused"))


def test_of_two_decisions_the_refusal_counts(tmp_path: Path) -> None:
    approved, refused = entry(), entry(decision="Refused")
    assert merge_approvals([refused], [approved])[0] == merge_approvals([approved], [refused])[0] == refused
    place = directory(tmp_path, {"approvals": [refused.model_dump(by_alias=True, exclude_none=True)]})
    with pytest.raises(ManifestInvalid, match="remove that entry first"):
        decide(place, approved)
    assert not place.approvals.exists()


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    place = directory(tmp_path)
    assert place.signing_key().verify_key == KEY.verify_key
    place.key_file.chmod(0o640)
    with pytest.raises(FileDamaged, match="chmod 600"):
        place.signing_key()


@pytest.mark.parametrize(
    "content", [b"", b"not PEM", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_systemd_does_not_start_again_over_a_key_file_that_is_no_key(tmp_path: Path, content: bytes) -> None:
    place = directory(tmp_path)
    place.key_file.write_bytes(content)
    expected = f"{re.escape(str(place.key_file))}: holds no unencrypted Ed25519 key.*; restore the directory"
    with pytest.raises(FedsiloError, match=expected) as refused:
        place.signing_key()
    unit = (ROOT / "systemd" / "fedsilo-silo.service").read_text()
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert str(refused.value.exit_code) in codes.split()


def test_another_key_than_the_registered_one_is_not_used(tmp_path: Path, hub: FakeHub) -> None:
    place = directory(tmp_path)
    for _ in range(2):
        whole, registered = place.key_file.read_bytes(), place.signing_key().verify_key.fingerprint
        place.key_file.write_bytes(with_a_flipped_bit(whole))
        with pytest.raises(
            FileDamaged, match=f"key.pem: .* has registered the key with {registered}; restore"
        ):
            place.signing_key()
        place.key_file.write_bytes(whole)
        asyncio.run(rotate_key(place, place.require_membership()))
        assert place.signing_key().verify_key.fingerprint != registered


def with_a_flipped_bit(pem: bytes) -> bytes:
    """A key in PEM whose last bit is another, which is a key, too."""
    begin, *lines, end = pem.splitlines()
    content = bytearray(base64.b64decode(b"".join(lines)))
    content[-1] ^= 1
    return b"\n".join([begin, base64.b64encode(content), end, b""])


def test_a_changed_letter_of_what_the_silo_remembers_is_found(tmp_path: Path) -> None:
    place = directory(tmp_path)
    path = place.private_directory / "hub.json"
    content = path.read_text().replace("hub.example", "hub.examplf")
    path.write_text(content)
    with pytest.raises(FileDamaged, match="join again"):
        place.require_membership()


class FakeHub:
    """Takes rotations and leavings as a hub does."""

    def __init__(self) -> None:
        self.rotations: list[Any] = []
        self.left: list[Any] = []

    async def rotate(self, rotation: Mapping[str, Any]) -> None:
        if rotation not in self.rotations:
            keys_since(SILO, PUBLIC_KEY, [*self.rotations, rotation])
            self.rotations.append(dict(rotation))

    async def leave(self, statement: Mapping[str, Any]) -> None:
        self.left.append(dict(statement))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub()

    @asynccontextmanager
    async def open_fake_hub(address: HubAddress, silo: str, key: SigningKey) -> AsyncIterator[FakeHub]:
        yield fake

    for user in (client, leaving):
        monkeypatch.setattr(user, "hub_client", open_fake_hub)
    return fake


def test_a_rotation_that_is_cut_off_anywhere_ends_with_one_new_key(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    while True:
        hub.rotations.clear()
        place = directory(tmp_path / str(steps))
        member = place.require_membership()
        with monkeypatch.context() as patch:
            done = crash_at(steps, patch)
            try:
                asyncio.run(rotate_key(place, member))
            except Crash:
                ended = True
            else:
                ended = False
        if ended:
            asyncio.run(rotate_key(place, member))
        present = place.signing_key().verify_key
        assert len(hub.rotations) == 1, f"step {steps}"
        assert keys_since(SILO, PUBLIC_KEY, hub.rotations)[-1] == present.to_text(), f"step {steps}"
        assert is_own(place, PUBLIC_KEY)
        assert sorted(path.name for path in place.private_directory.glob("[!.]*.*")) == [
            "heard.json",
            "hub.json",
            "key.pem",
        ]
        assert place.key_file.stat().st_mode & 0o777 == 0o600
        if not ended:
            break
        steps += 1
    assert len(done) == steps > 8
    assert durable.intercept is None


def test_a_silo_leaves_once_however_often_it_says_so(tmp_path: Path, hub: FakeHub) -> None:
    place = directory(tmp_path)
    member = place.require_membership()
    for _ in range(2):
        asyncio.run(leave(place, member))
    first, second = hub.left
    assert first == second
    assert read_leaving(first, SILO, PUBLIC_KEY)[0] == HUB_KEY.verify_key.key_id
    assert json.loads(place.leaving_file.read_text())["statement"] == first
