"""The consortium's office invites, accepts and revokes: what is printed, what is written, and what is not."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from fedsilo.api.invitation import SiloInvitation, read_invitation
from fedsilo.api.notations import Time
from fedsilo.api.silo import Silo
from fedsilo.cli.cluster import enrolment
from fedsilo.cli.main import main
from fedsilo.errors import ManifestInvalid
from fedsilo.silo.leaving import sign_leaving
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey
from tests.unit.cli.fake_kubectl import FakeKubectl
from tests.unit.cli.objects import silo

SIGNING_KEY, NEXT_KEY = SigningKey.from_seed(b"k" * 32), SigningKey.from_seed(b"n" * 32)
KEY = SIGNING_KEY.verify_key
START = datetime(2026, 1, 3, tzinfo=UTC)
ROTATION = sign_rotation("silo-north/north", SIGNING_KEY, NEXT_KEY, START)
HUB = {"url": "https://hub.example", "key": SigningKey.from_seed(b"h" * 32).verify_key.to_text()}
ENROLMENT = {
    "publicKey": KEY.to_text(),
    "fingerprint": "ffff-ffff-ffff-ffff-ffff",
    "tokenDigest": "ab" * 32,
    "time": "2026-01-02T03:04:05Z",
    "version": "0.1.0",
}
INVITATION = {"tokenDigest": ENROLMENT["tokenDigest"], "expires": "2026-01-08T00:00:00Z"}
NEXT_INVITATION = INVITATION | {"tokenDigest": "cd" * 32}
GET = "get silos.fedsilo.io north --namespace silo-north --output=json"


def remote_silo(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    content: dict[str, Any] = silo("north")
    content["metadata"]["resourceVersion"] = "17"
    spec = {"invitation": INVITATION} | spec
    return content | {"spec": {"remote": spec}, "status": {"hub": HUB} if status is None else status}


def call(*arguments: str) -> int:
    return main([*arguments, "north", "-n", "silo-north"])


def patches(kubectl: FakeKubectl) -> list[dict[str, Any]]:
    calls = [call.words for call in kubectl.calls if call.words[0] == "patch"]
    found = [json.loads(words[-1].removeprefix("--patch=")) for words in calls]
    assert all(patch["metadata"] == {"resourceVersion": "17"} for patch in found)
    return [patch["spec"]["remote"] for patch in found]


def test_an_institution_is_invited(kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.answer(
        GET,
        {"err": 'Error from server (NotFound): silos.fedsilo.io "north" not found\n', "code": 1},
        {"out": json.dumps(remote_silo(status={}))},
        {"out": json.dumps(remote_silo())},
    )
    kubectl.answer("create .*", {})
    assert call("invite") == 0
    printed = capsys.readouterr()
    invitation = read_invitation(printed.out, "invitation.yaml")
    assert (invitation.silo, invitation.hub.url) == ("silo-north/north", "https://hub.example")
    (made,) = [json.loads(call.given) for call in kubectl.calls if call.words[0] == "create"]
    written = Silo.model_validate(made).spec.remote
    assert written is not None
    assert written.invitation is not None
    assert written.invitation.token_digest == hashlib.sha256(invitation.token.encode()).hexdigest()
    assert written.invitation.expires == invitation.expires
    assert invitation.token not in json.dumps(made)
    assert "kubectl fedsilo accept" in printed.err


def test_a_second_invitation_brings_no_revoked_key_back(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json(GET, remote_silo(revoked=True, publicKey=KEY.to_text()))
    kubectl.answer("patch .*", {})
    assert call("invite") == 0
    (patch,) = patches(kubectl)
    assert patch["revoked"] is False
    assert patch["publicKey"] is None
    kubectl.answer_first(GET, {"out": json.dumps(remote_silo(publicKey=KEY.to_text()))})
    assert call("invite") == 0
    assert patches(kubectl)[1].keys() == {"invitation"}


def test_no_gateway_and_a_silo_of_the_cluster_are_named(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "HUB_SECONDS", 0.0)
    kubectl.json(GET, remote_silo(status={}))
    kubectl.answer("patch .*", {})
    assert call("invite") == 1
    assert "no gateway has written its address" in capsys.readouterr().err
    metadata = {"name": "fedsilo-gateway", "namespace": "fedsilo-system"}
    for items, words in (
        ([], "switch on gateway.enabled"),
        (
            [{"metadata": metadata, "status": {}}],
            "the gateway is pending: Deployment fedsilo-system/fedsilo-gateway",
        ),
        ([{"metadata": metadata, "status": {"readyReplicas": 1}}], "kubectl logs -n fedsilo-system"),
    ):
        kubectl.answer_first("get deployments --all-namespaces .*", {"out": json.dumps({"items": items})})
        assert call("invite") == 1
        assert words in capsys.readouterr().err
    kubectl.answer_first(GET, {"out": json.dumps(silo("north"))})
    for command in ("invite", "accept", "revoke"):
        assert call(command) == 2
        assert "is a silo of this cluster" in capsys.readouterr().err
    assert call("invite", "--days", "0") == 2


def test_a_key_is_accepted_by_the_fingerprint_of_the_key_itself(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever can write the status could write any fingerprint beside any key."""
    kubectl.json(GET, remote_silo({"enrolment": ENROLMENT}))
    kubectl.answer("patch .*", {})
    assert call("accept") == 2, "nobody can be asked"
    assert patches(kubectl) == []
    assert call("accept", "--yes") == 0
    printed = capsys.readouterr().out
    assert KEY.fingerprint in printed
    assert ENROLMENT["fingerprint"] not in printed
    assert patches(kubectl) == [{"publicKey": KEY.to_text()}]
    kubectl.answer_first(
        GET, {"out": json.dumps(remote_silo({"enrolment": ENROLMENT}, publicKey=KEY.to_text()))}
    )
    assert call("accept", "--yes") == 0
    assert "is accepted already" in capsys.readouterr().out
    assert len(patches(kubectl)) == 1


def test_nothing_is_accepted_that_was_not_registered_or_is_revoked(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json(GET, remote_silo(), remote_silo({"enrolment": ENROLMENT}, revoked=True))
    assert call("accept", "--yes") == 2
    assert "has registered no key" in capsys.readouterr().err
    assert call("accept", "--yes") == 5
    assert "is revoked" in capsys.readouterr().err


def test_an_enrolment_of_an_earlier_invitation_is_not_accepted(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever was revoked has used the invitation before, and the newest was made for somebody else, perhaps."""
    status = {"hub": HUB, "enrolment": ENROLMENT}
    kubectl.json(GET, remote_silo(status, revoked=True, publicKey=KEY.to_text()))
    kubectl.answer("patch .*", {})
    assert call("invite") == 0
    (written,) = patches(kubectl)
    after = {name: value for name, value in written.items() if value is not None}
    kubectl.answer_first(GET, {"out": json.dumps(remote_silo(status, **after))})
    capsys.readouterr()
    assert call("accept", "--yes") == 2
    said = capsys.readouterr().err
    assert f"the one with the fingerprint {KEY.fingerprint} is of an earlier invitation" in said
    assert "give the institution the newest invitation" in said
    used = {**ENROLMENT, "tokenDigest": after["invitation"]["tokenDigest"]}
    kubectl.answer_first(GET, {"out": json.dumps(remote_silo({"enrolment": used}, **after))})
    assert call("accept", "--yes") == 0
    assert patches(kubectl)[1:] == [{"publicKey": KEY.to_text()}]


def test_an_accepted_key_stays_so_whatever_is_invited_since(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    found = remote_silo({"enrolment": ENROLMENT}, invitation=NEXT_INVITATION, publicKey=KEY.to_text())
    kubectl.json(GET, found)
    assert call("accept", "--yes") == 0
    assert "is accepted already" in capsys.readouterr().out


@pytest.mark.parametrize("accepted", [True, False])
def test_the_fingerprint_is_that_of_the_key_in_force(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], accepted: bool
) -> None:
    status = {"enrolment": ENROLMENT, "rotations": [ROTATION]}
    kubectl.json(GET, remote_silo(status, **({"publicKey": KEY.to_text()} if accepted else {})))
    kubectl.answer("patch .*", {})
    assert call("accept", "--yes") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == f"fingerprint   {NEXT_KEY.verify_key.fingerprint}"
    assert printed[2] == f"announced     under earlier keys, of which the first was {KEY.fingerprint}"
    assert patches(kubectl) == ([] if accepted else [{"publicKey": NEXT_KEY.verify_key.to_text()}])


def test_keys_that_do_not_follow_and_a_silo_that_has_left_are_not_accepted(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"enrolment": ENROLMENT, "rotations": [{**ROTATION, "signature": "x"}]}
    gone = {"enrolment": ENROLMENT, "leaving": sign_leaving("silo-north/north", "0" * 16, START, SIGNING_KEY)}
    kubectl.json(GET, remote_silo(broken), remote_silo(gone))
    assert call("accept", "--yes") == 2
    assert "status.rotations does not lead from the registered key to another" in capsys.readouterr().err
    assert call("accept", "--yes") == 5
    assert "has left the consortium at 2026-01-03" in capsys.readouterr().err
    assert patches(kubectl) == []


def test_an_institution_is_revoked(kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.json(GET, remote_silo(publicKey=KEY.to_text()), remote_silo(revoked=True))
    kubectl.answer("patch .*", {})
    assert call("revoke", "--yes") == 0
    assert patches(kubectl) == [{"revoked": True}]
    assert call("revoke", "--yes") == 0
    assert len(patches(kubectl)) == 1


def test_a_silo_that_others_change_meanwhile_is_left_alone(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json(GET, remote_silo({"enrolment": ENROLMENT}))
    kubectl.refuse("patch .*", 'Error from server (Conflict): Operation cannot be fulfilled on silos "north"')
    assert call("accept", "--yes") == 1
    assert "was changed meanwhile" in capsys.readouterr().err


def test_every_changed_letter_of_an_invitation_shows() -> None:
    hub = Silo.model_validate(
        {"metadata": {"name": "n"}, "spec": {"remote": {}}, "status": {"hub": HUB}}
    ).status.hub
    assert hub is not None
    text = SiloInvitation.of(hub, "silo-north/north", "token", Time("2026-01-02T03:04:05Z")).to_yaml()
    assert read_invitation(text, "f").token == "token"
    document = yaml.safe_load(text)
    for name in ("silo", "token", "expires", "checksum"):
        changed = document | {
            name: document[name].replace(document[name][3], "x" if name != "expires" else "7")
        }
        with pytest.raises(ManifestInvalid, match=r"invitation\.yaml: checksum: .*ask for it again"):
            read_invitation(yaml.safe_dump(changed), "invitation.yaml")
    for bad in ("", "<html></html>", "a: [", "kind: Silo", text.replace("https://hub", "http://hub")):
        with pytest.raises(ManifestInvalid, match=r"invitation\.yaml: "):
            read_invitation(bad, "invitation.yaml")
