"""What the operator is started with."""

from __future__ import annotations

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo_operator.__main__ import _arguments

IMAGES = ["--aggregator-image=a", "--guard-image=g", "--trainer-image=t"]


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ([], (443, 6443)),
        (["--api-server-ports=16443"], (16443,)),
        (["--api-server-ports=443, 8443"], (443, 8443)),
    ],
)
def test_ports_of_the_api_server(given: list[str], ports: tuple[int, ...]) -> None:
    assert _arguments([*IMAGES, *given]).api_server_ports == ports


@pytest.mark.parametrize("given", ["", "443;6443", "0", "65536", "https", "443,"])
def test_what_is_no_port_is_named(given: str) -> None:
    with pytest.raises((SystemExit, ManifestInvalid), match="is no port; give numbers from 1 to 65535"):
        _arguments([*IMAGES, f"--api-server-ports={given}"])
