"""A service listens on all addresses of its machine, of whichever kind these are."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from fedsilo.http.listening import EVERY_ADDRESS, listening_socket


def _is_reached(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6")
def test_every_address_is_one_of_either_kind() -> None:
    with listening_socket(EVERY_ADDRESS, 0) as listening:
        port = listening.getsockname()[1]
        assert _is_reached("127.0.0.1", port)
        assert _is_reached("::1", port)


@pytest.mark.parametrize("absent", ["no IPv6 in the kernel", "IPv6 switched off"])
def test_a_machine_without_ipv6_is_reached_by_ipv4(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_server = socket.create_server

    def create(address: tuple[str, int], **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create_server(address, **options)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: absent == "IPv6 switched off")
    monkeypatch.setattr(socket, "create_server", create)
    with listening_socket(EVERY_ADDRESS, 0) as listening:
        assert _is_reached("127.0.0.1", listening.getsockname()[1])


def test_one_address_is_no_other() -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert _is_reached("127.0.0.1", port)
        assert not _is_reached("::1", port)


def test_a_port_that_is_taken_is_refused() -> None:
    with listening_socket(EVERY_ADDRESS, 0) as taken, pytest.raises(OSError, match="in use"):
        listening_socket(EVERY_ADDRESS, taken.getsockname()[1])
