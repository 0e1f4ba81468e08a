"""The invitation is a file that a person can read, and of which every change is told with what to do."""

from __future__ import annotations

import re

import pytest
import yaml
from pydantic import ValidationError

from fedsilo.api.invitation import SiloInvitation, read_invitation
from fedsilo.api.notations import Time
from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import ManifestInvalid
from fedsilo.wire import SigningKey, make_authority

AUTHORITY = make_authority().cert_pem.decode()
KEY = SigningKey.from_seed(b"k" * 32).verify_key.to_text()
HUB = HubAddress(url="https://hub.example", ca_certificate=AUTHORITY, key=KEY)
INVITATION = SiloInvitation.of(HUB, "silo-clinic/clinic", "s3cret", Time("2026-07-08T12:00:00Z"))
REMEDY = "; it was changed on the way; take the file as it was sent, or ask for it again"


def test_the_authority_stands_there_as_a_certificate() -> None:
    text = INVITATION.to_yaml()
    assert "caCertificate: |\n    -----BEGIN CERTIFICATE-----\n" in text
    assert read_invitation(text, "invitation.yaml") == INVITATION


def test_a_checksum_that_looks_like_a_number_is_a_text() -> None:
    """One in some thousand does: digits with an e between them."""
    made = (SiloInvitation.of(HUB, "a/a", f"token{n}", Time("2026-07-08T12:00:00Z")) for n in range(100_000))
    odd = next(one for one in made if re.fullmatch(r"\d+e\d+", one.checksum))
    assert read_invitation(odd.to_yaml(), "invitation.yaml") == odd


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("token", None, "token: is missing"),
        ("hub", {"url": "https://hub.example"}, "hub.key: is missing"),
        ("expires", "soon", "expires: is not a time"),
        ("tokn", "x", "tokn: is not a known field"),
        ("token", "s4cret", "checksum: does not fit the rest of the file"),
        (
            "hub",
            {"url": "https://hub.example:99999", "key": KEY},
            "hub.url: has no host, or a port that is none",
        ),
    ],
)
def test_what_was_changed_is_named_with_the_remedy(field: str, value: object, said: str) -> None:
    document = yaml.safe_load(INVITATION.to_yaml()) | {field: value}
    text = yaml.safe_dump({name: value for name, value in document.items() if value is not None})
    with pytest.raises(ManifestInvalid) as caught:
        read_invitation(text, "invitation.yaml")
    assert str(caught.value) == f"invitation.yaml: {said}{REMEDY}"
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("url", "https://hub.example@evil.example", "hub.url: has a user, a query, a fragment"),
        ("url", "https://user:password@hub.example", "hub.url: has a user, a query, a fragment"),
        ("url", "https://hub.example/?to=", "hub.url: has a user, a query, a fragment"),
        ("url", "https://hub.example/#", "hub.url: has a user, a query, a fragment"),
        ("url", "https://hub.example\\@evil.example", "hub.url: has a user, a query, a fragment"),
        ("url", "https://h\u00fcb.example", "hub.url: has a user, a query, a fragment"),
        ("url", "http://hub.example", "hub.url: has not the right form"),
        ("key", "ed25519:AAAA", "hub.key: has not the right form"),
        ("silo", "clinic", "silo: has not the right form"),
        ("silo", "../clinic", "silo: has not the right form"),
        ("silo", "silo-clinic/clinic/other", "silo: has not the right form"),
        ("silo", "silo-clinic/clinic\x1b[31m", "silo: has not the right form"),
        ("silo", f"{'n' * 64}/clinic", "silo: has not the right form"),
        ("token", "two words", "token: has not the right form"),
        ("checksum", "0", "checksum: has not the right form"),
    ],
)
def test_each_field_has_a_form(place: str, value: str, said: str) -> None:
    document = yaml.safe_load(INVITATION.to_yaml())
    (document["hub"] if place in ("url", "key") else document)[place] = value
    with pytest.raises(ManifestInvalid) as caught:
        read_invitation(yaml.safe_dump(document), "invitation.yaml")
    assert str(caught.value).startswith(f"invitation.yaml: {said}")
    assert str(caught.value).isprintable()


def test_a_text_that_is_work_without_end_is_no_invitation() -> None:
    bomb = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    for text in (bomb, "[" * 50_000, "\0", "a: 1\n---\nb: 2\n", INVITATION.to_yaml() + "token: x\n"):
        with pytest.raises(ManifestInvalid, match=r"^f: is no invitation; give the file"):
            read_invitation(text, "f")


@pytest.mark.parametrize(
    "url", ["https://hub.example:0", "https://hub.example:65536", "https://:8443", "https://[::1"]
)
def test_a_url_that_nobody_can_connect_to_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="with a port from 1 to 65535"):
        HubAddress(url=url, key=KEY)


@pytest.mark.parametrize(
    "url", ["https://hub.example", "https://hub.example:65535/path", "https://[::1]:8443"]
)
def test_any_other_is_kept_as_it_was_written(url: str) -> None:
    assert HubAddress(url=url, key=KEY).url == url
