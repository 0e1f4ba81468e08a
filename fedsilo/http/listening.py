"""The socket on which a service listens."""

from __future__ import annotations

import errno
import os
import socket

EVERY_ADDRESS = ""
"""Host of a service that all addresses of its machine lead to, of IPv4 and of IPv6."""

BACKLOG = 256
"""Connections that the kernel keeps until they are accepted: those of all silos of a job at once."""

MAX_PORT = 65_535


def listening_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that listens and does not block.

    :param host: a name or an address, or `EVERY_ADDRESS`.
    :param port: 0 lets the system choose.
    :raises OSError: when the address cannot be had.
    :raises OverflowError: a port that no address has.
    """
    if not 0 <= port <= MAX_PORT:  # Python's own refusal leaves a socket open
        raise OverflowError(f"a port is from 0 to {MAX_PORT}")
    listening = _bound_socket(host, port)
    listening.setblocking(False)
    return listening


def refusal_reason(error: OSError | OverflowError) -> str:
    """Why `listening_socket` had no socket, in the system's words."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _bound_socket(host: str, port: int) -> socket.socket:
    if host == EVERY_ADDRESS:
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    (host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
                )
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:  # the kernel has IPv6, and it is switched off here
                    raise
        return socket.create_server((host, port), backlog=BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
