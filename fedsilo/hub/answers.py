"""Connections to the outside: of what precedes an answer, only so much is taken.

An HTTP server may send any number of interim answers (status 100 to 199) before the answer. aiohttp skips them, and by
then it has parsed all that have arrived: a hostile server that sends nothing else would fill this side's memory.

While an answer is waited for, nothing passes, and a link that was cut looks the same. So the kernel asks the other end
now and then whether it is there.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from typing_extensions import override

MAX_INTERIM_ANSWERS = 16
"""Most interim answers in a row; the protocol has none."""

KEEPALIVE = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 5,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
}
"""Socket options by which the other end is asked every 5 s after 15 s without a byte, and is gone after 30 s."""


def connector() -> aiohttp.TCPConnector:
    """Makes connections that are such."""
    made = aiohttp.TCPConnector()
    made._factory = functools.partial(BoundedConnection, loop=made._loop)  # type: ignore[assignment]
    return made


class BoundedConnection(ResponseHandler):
    """One connection, which breaks when it carries nothing but interim answers, or when the other end is gone."""

    _interim = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the kernel look after the connection."""
        super().connection_made(transport)
        for (level, option), value in KEEPALIVE.items():
            transport.get_extra_info("socket").setsockopt(level, option, value)

    @override
    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take one answer that was parsed."""
        self._interim = self._interim + 1 if data[0].code < 200 else 0
        if self._interim <= MAX_INTERIM_ANSWERS:
            super().feed_data(data, size)
        elif self.transport is not None:
            self.abort()
            self.set_exception(aiohttp.ClientPayloadError("interim answers without end"))
