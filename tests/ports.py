"""Ports for the servers of tests."""

from __future__ import annotations

import os
import random
import socket

FIRST_PORT, LAST_PORT = 12_000, 28_000
"""Below the ports that the system hands out by itself, and those of Kubernetes' Services."""


def free_port() -> int:
    """A port on which nothing listens, and which no other worker of pytest-xdist is given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = (LAST_PORT - FIRST_PORT) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = FIRST_PORT + share * worker + random.randrange(share)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
