"""The connector's command line."""

from __future__ import annotations

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo_operator.connector.__main__ import _arguments

REQUIRED_ARGUMENTS = ["--invitation=i.yaml", "--guard-image=g", "--trainer-image=t"]


def test_by_default_guards_get_out_directly_and_anywhere() -> None:
    given = _arguments(REQUIRED_ARGUMENTS)
    assert (given.guard_networks, given.guard_proxy_secret, given.guard_proxy_port) == ((), None, None)
    assert not given.guard_metrics


def test_networks_are_separated_by_commas() -> None:
    given = _arguments([*REQUIRED_ARGUMENTS, "--guard-networks=192.0.2.7/32, 2001:db8::/64"])
    assert given.guard_networks == ("192.0.2.7/32", "2001:db8::/64")


@pytest.mark.parametrize("text", ["", "hub.example", "192.0.2.7/24", "192.0.2.7/32,"])
def test_what_is_no_network_is_named(text: str) -> None:
    with pytest.raises(ManifestInvalid, match="is no network; give addresses like"):
        _arguments([*REQUIRED_ARGUMENTS, f"--guard-networks={text}"])
