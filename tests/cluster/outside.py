"""A host outside the cluster: a network namespace behind a link of its own, with an echo of who connected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESS = "198.51.100.2"
"""An address of TEST-NET-2 (RFC 5737), which nobody routes."""

PORT = 8000

_NAME = "fedsilo-outside"
_LINK = "fedsilo-out"
_GATEWAY = "198.51.100.1"

# A listener that every connection ends at; nothing is answered.
_LISTEN = (
    "import socket\n"
    f"server = socket.create_server(('{ADDRESS}', {PORT}))\n"
    "print('listening', flush=True)\n"
    "while True:\n"
    "    server.accept()[0].close()\n"
)


@contextmanager
def outside_host() -> Iterator[None]:
    """The host, for as long as the block runs."""
    _remove()
    _ip("netns", "add", _NAME)
    try:
        _ip("link", "add", _LINK, "type", "veth", "peer", "name", "eth0", "netns", _NAME)
        _ip("addr", "add", f"{_GATEWAY}/30", "dev", _LINK)
        _ip("link", "set", _LINK, "up")
        _ip("-n", _NAME, "addr", "add", f"{ADDRESS}/30", "dev", "eth0")
        _ip("-n", _NAME, "link", "set", "eth0", "up")
        _ip("-n", _NAME, "route", "add", "default", "via", _GATEWAY)
        with subprocess.Popen(
            ["ip", "netns", "exec", _NAME, sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE
        ) as listener:
            try:
                assert listener.stdout is not None and listener.stdout.readline() == b"listening\n"
                yield
            finally:
                listener.kill()
    finally:
        _remove()


def _remove() -> None:
    subprocess.run(["ip", "link", "del", _LINK], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["ip", "netns", "del", _NAME], stderr=subprocess.DEVNULL, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
