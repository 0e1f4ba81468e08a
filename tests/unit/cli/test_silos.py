"""The institutions of a hub as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.silo import Silo
from fedsilo.cli.main import main
from fedsilo.cli.silos import table
from fedsilo.silo.offer import sign_offer
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey
from tests.unit.cli.fake_kubectl import FakeKubectl
from tests.unit.cli.objects import NOW, ago, condition, silo

GOLDEN = Path(__file__).with_name("golden")
KEY = SigningKey.from_seed(b"k" * 32)
PUBLIC_KEY = KEY.verify_key.to_text()
READY_CONDITION = condition("Ready", "True", "KeyReady", "The silo signs.")
DATASETS = [{"name": "scans", "loader": "npz", "classes": 10}, {"name": "notes", "loader": "npz"}]
INVITATION = {"tokenDigest": "ab" * 32, "expires": ago(days=-3)}
ENROLMENT = {
    "publicKey": PUBLIC_KEY,
    "time": ago(days=3),
    "version": "fedsilo 0.1.0",
    "fingerprint": "x",
    "tokenDigest": INVITATION["tokenDigest"],
}


def institution(
    name: str, *conditions: dict[str, Any], remote: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    content: dict[str, Any] = silo(name)
    spec = content["spec"] if remote is None else {"remote": remote}
    return content | {"spec": spec, "status": {**status, "conditions": list(conditions)}}


def offer(name: str) -> dict[str, Any]:
    """What the silo has signed."""
    content = {**silo(name), "spec": {"datasets": DATASETS}}
    return sign_offer(Silo.model_validate(content), NOW, KEY)


CENTRE_SILO = institution("centre", READY_CONDITION, publicKey=PUBLIC_KEY, offer=offer("centre"))
NORTH = institution(
    "north",
    READY_CONDITION,
    remote={"publicKey": PUBLIC_KEY},
    publicKey=PUBLIC_KEY,
    offer=offer("north"),
    enrolment=ENROLMENT,
    lastSeen=ago(minutes=1),
)
SILENT_SILO = institution(
    "east",
    READY_CONDITION,
    condition("Connected", "False", "NotHeardOf", "Nothing was heard of it\nfor 5 h"),
    remote={"publicKey": PUBLIC_KEY},
    publicKey=PUBLIC_KEY,
    offer=offer("north"),
    enrolment=ENROLMENT | {"version": "fedsilo 0.2.0\x1b[2J"},
    lastSeen=ago(hours=5),
)
PENDING_SILO = institution(
    "south",
    condition("Ready", "False", "EnrolmentPending", "The institution has registered a key."),
    remote={"invitation": INVITATION},
    enrolment=ENROLMENT,
)
INVITED_SILO = institution(
    "west",
    condition("Ready", "False", "Invited", "The institution has not used its invitation yet."),
    remote={},
)
NEW_SILO = {**silo("young"), "status": None}


def test_the_fingerprint_is_that_of_the_key_in_force_and_of_the_present_invitation() -> None:
    after = SigningKey.from_seed(b"a" * 32)
    rotated = [sign_rotation("silo-south/south", KEY, after, NOW)]

    def shown_table(invitation: dict[str, str]) -> str:
        found = institution(
            "south", remote={"invitation": invitation}, enrolment=ENROLMENT, rotations=rotated
        )
        return table([found], NOW, namespaces=True)

    assert after.verify_key.fingerprint in shown_table(INVITATION)
    assert KEY.verify_key.fingerprint not in shown_table(INVITATION)
    later = shown_table({**INVITATION, "tokenDigest": "cd" * 32})
    assert after.verify_key.fingerprint not in later
    assert KEY.verify_key.fingerprint not in later


@pytest.mark.parametrize(("name", "namespaces"), [("silos", False), ("silos-all", True)])
def test_the_output_is_that_of_the_golden_file(name: str, namespaces: bool) -> None:
    shown = table(
        [PENDING_SILO, NORTH, CENTRE_SILO, SILENT_SILO, INVITED_SILO, NEW_SILO], NOW, namespaces=namespaces
    )
    assert f"{shown}\n" == (GOLDEN / f"{name}.txt").read_text()


def test_a_key_that_is_none_and_no_silos_at_all_are_told() -> None:
    broken = institution("north", publicKey="ed25519:none", offer=offer("north"))
    row = table([broken], NOW, namespaces=False).splitlines()[1]
    assert "unreadable" in row
    assert "not its own word" in row
    assert table([], NOW, namespaces=False) == "there are no silos in this namespace"
    assert table([], NOW, namespaces=True) == "there are no silos"


@pytest.mark.parametrize(
    ("arguments", "asked", "first"),
    [
        (["-A"], "--all-namespaces", "silo-north/north"),
        (["-n", "silo-north"], "--namespace silo-north", "north"),
    ],
)
def test_the_silos_that_are_asked_for(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], arguments: list[str], asked: str, first: str
) -> None:
    kubectl.items(f"get silos.fedsilo.io {asked} --output=json", NORTH)
    assert main(["silos", *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == first
