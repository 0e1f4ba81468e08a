"""The body of a large answer goes from connection to connection, past the HTTP library.

Once the head of an aggregator's answer is read and its length is known, what follows is so many bytes. They are
decrypted into one buffer that all relays share and written to the silo's connection at once, without a queue and
without waking anything, as long as that connection takes them. When it does not, the aggregator's connection is not
read until it does. Afterwards the library has both connections again, and they are used for further requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

BUFFER_BYTES = 256 << 10
"""Bytes that are taken from a connection at a time."""

_BUFFER = memoryview(bytearray(BUFFER_BYTES))
"""What was read lies here only until it is written, which is before anything else is read."""

HIGH_WATER, LOW_WATER = 512 << 10, 128 << 10
"""Bytes that wait for a connection when nothing more is read for it, and when reading goes on."""


async def relay_body(
    answer: aiohttp.ClientResponse, response: web.StreamResponse, request: web.Request, silence: float
) -> None:
    """Write the body of an answer as that of a response of the same length, whose head was prepared.

    :raises OSError: when either connection ends before the body does.
    :raises TimeoutError: when nothing moved for so many seconds of silence.
    """
    read, left = _begin(answer)
    await response.write(read)
    sink, connection = request.transport, answer.connection
    if sink is None or connection is None or connection.protocol is None or connection.transport is None:
        raise ConnectionResetError("a connection ended before the body did")
    sink.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
    connection.protocol.pause_reading()  # the library's time-out ends with it, too
    silos = request.protocol
    relay = Relay(connection.transport, left, sink.write, lambda: silos.writing_paused)
    await relay.run(silos._drain_helper, silence)
    answer.content.feed_eof()


def _begin(answer: aiohttp.ClientResponse) -> tuple[bytes, int]:
    """What the library has read already, and how much is still to come."""
    content, read = answer.content, bytearray()
    # To read makes room, whereupon the library parses more of what it has.
    while len(read) < content.total_bytes:
        read += content.read_nowait()
    return bytes(read), (answer.content_length or 0) - len(read)


class Relay(asyncio.BufferedProtocol):
    """Has the aggregator's connection while the rest of a body comes over it.

    :param length: bytes that are still to come.
    :param write: takes bytes, which it keeps or sends.
    :param is_full: whether nothing more is to be written for now.
    """

    def __init__(
        self,
        source: asyncio.Transport,
        length: int,
        write: Callable[[bytes], object],
        is_full: Callable[[], bool],
    ) -> None:
        self._source = source
        self._before = source.get_protocol()
        self._left = length
        self._write = write
        self._is_full = is_full
        self._moved = 0.0
        self._is_held = False
        self._news = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self, drained: Callable[[], Awaitable[object]], silence: float) -> None:
        """Return when all bytes were written; the connection is then as it was before.

        :param drained: returns when more can be written.
        :param silence: longest time in which nothing is read, or the other side takes nothing.
        :raises OSError: when the connection ends before.
        :raises TimeoutError: after such a silence.
        """
        loop = asyncio.get_running_loop()
        self._moved = loop.time()
        self._source.set_protocol(self)
        self._source.resume_reading()
        try:
            while self._left:
                self._news.clear()
                if self._failure is not None:
                    raise self._failure
                if self._is_held:
                    async with asyncio.timeout(silence):
                        await drained()
                    self._moved, self._is_held = loop.time(), False
                    self._source.resume_reading()
                await self._wait(silence)
        except BaseException:
            # Nobody can tell any more where in the body this connection is.
            self._source.abort()
            raise

    def get_buffer(self, _sizehint: int) -> Any:
        """Where to put what is read: one byte more than belongs to this body shows that the aggregator sends more."""
        return _BUFFER[: min(self._left + 1, BUFFER_BYTES)]

    def buffer_updated(self, nbytes: int) -> None:
        """Write what was read."""
        own = min(nbytes, self._left)
        self._left -= own
        self._moved = asyncio.get_running_loop().time()
        # The other connection may keep it until it can be sent.
        self._write(bytes(_BUFFER[:own]))
        if nbytes > own:
            # What follows would be taken for the answer to the next request over this connection.
            self._source.abort()
        if not self._left:
            self._source.set_protocol(self._before)
            self._news.set()
        elif self._is_full():
            self._is_held = True
            self._source.pause_reading()
            self._news.set()

    def eof_received(self) -> None:
        """The aggregator sends no more, so it is over."""
        self._fail(ConnectionResetError("the aggregator ended its answer early"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The library hears of it too."""
        self._fail(exc or ConnectionResetError("the aggregator's connection ended within its answer"))
        self._before.connection_lost(exc)

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        self._news.set()

    async def _wait(self, silence: float) -> None:
        """Return at news; as long as bytes arrive, that may take any time."""
        while not self._news.is_set():
            try:
                async with asyncio.timeout_at(self._moved + silence):
                    await self._news.wait()
            except TimeoutError:
                if asyncio.get_running_loop().time() >= self._moved + silence:
                    raise
