"""An institution asks its own silo for another key, or to leave: what is written, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedsilo.cli.main import main
from fedsilo.errors import ManifestInvalid
from fedsilo.wire import SigningKey
from tests.unit.cli.fake_kubectl import FakeKubectl
from tests.unit.cli.objects import silo

KEY = SigningKey.from_seed(b"k" * 32).verify_key
GET = "get silos.fedsilo.io north --namespace silo-north --output=json"


def local(annotations: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    content: dict[str, Any] = silo("north")
    content["metadata"] |= {"uid": "u-17", "annotations": annotations or {}}
    return content | {"status": {"publicKey": KEY.to_text(), **status}}


def call(*arguments: str) -> int:
    return main([*arguments, "north", "-n", "silo-north"])


def patches(kubectl: FakeKubectl) -> list[Any]:
    return [
        json.loads(call.words[-1].removeprefix("--patch="))["metadata"]
        for call in kubectl.calls
        if call.words[0] == "patch"
    ]


def test_the_key_to_replace_is_named_so_that_nothing_is_asked_twice(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json(GET, local())
    kubectl.answer("patch .*", {})
    assert call("rotate-key", "--yes") == 0
    wanted = {"fedsilo.io/rotate-key": KEY.key_id}
    assert patches(kubectl) == [{"uid": "u-17", "annotations": wanted}]
    assert KEY.fingerprint in capsys.readouterr().out
    kubectl.answer_first(GET, {"out": json.dumps(local(wanted))})
    assert call("rotate-key", "--yes") == 0
    assert len(patches(kubectl)) == 1
    assert "already" in capsys.readouterr().out


def test_a_silo_of_a_hub_is_asked_to_leave_once(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = {"hub": "0123456789abcdef", "version": 3}
    kubectl.json(GET, local(followed=followed))
    kubectl.answer("patch .*", {})
    assert call("leave", "--yes") == 0
    assert patches(kubectl) == [{"uid": "u-17", "annotations": {"fedsilo.io/leave": "true"}}]
    kubectl.answer_first(GET, {"out": json.dumps(local({"fedsilo.io/leave": "true"}, followed=followed))})
    assert call("leave", "--yes") == 0
    assert len(patches(kubectl)) == 1
    assert "already" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["rotate-key", "leave"])
def test_nothing_is_asked_of_an_institution_that_is_elsewhere(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    kubectl.json(GET, local() | {"spec": {"remote": {}}})
    assert call(command, "--yes") == ManifestInvalid.exit_code
    assert "outside of this cluster" in capsys.readouterr().err
    assert not patches(kubectl)


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("rotate-key", {"publicKey": None}, "has published no key yet"),
        ("leave", {}, "follows no hub"),
    ],
)
def test_what_cannot_be_done_is_said(
    kubectl: FakeKubectl,
    capsys: pytest.CaptureFixture[str],
    command: str,
    status: dict[str, Any],
    words: str,
) -> None:
    kubectl.json(GET, local(**status))
    assert call(command, "--yes") == ManifestInvalid.exit_code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["rotate-key", "leave"])
def test_somebody_has_to_agree_and_a_silo_that_is_made_anew_is_said(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    kubectl.json(GET, local(followed={"hub": "0123456789abcdef", "version": 3}))
    immutable = 'The Silo "north" is invalid: metadata.uid: Invalid value: "u-17": field is immutable'
    kubectl.answer("patch .*", {"err": f"{immutable}\n", "code": 1})
    assert call(command) == ManifestInvalid.exit_code
    assert not patches(kubectl)
    assert call(command, "--yes") == 1
    assert "was made anew meanwhile" in capsys.readouterr().err
