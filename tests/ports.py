"""Ports for the tests' own servers."""

from __future__ import annotations

import os
import socket


def free_port() -> int:
    """A port on which nothing listens, and which no other worker of pytest-xdist is given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port % workers == worker:
            return port
