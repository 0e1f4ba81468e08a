"""The body of a large request or answer goes from connection to connection, past the HTTP library.

Once the head of a message is read and its length is known, what follows is so many bytes. They are decrypted into one
buffer that all relays share and written to the other connection at once, without a queue and without waking anything,
as long as that connection takes them. When it does not, the one that they come over is not read until it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from typing_extensions import override

BUFFER_BYTES = 256 << 10
"""Bytes that are taken from a connection at a time."""

_BUFFER = memoryview(bytearray(BUFFER_BYTES))
"""What was read lies here only until it is written, which is before anything else is read."""

HIGH_WATER, LOW_WATER = 512 << 10, 128 << 10
"""Bytes that wait for a connection when nothing more is read for it, and when reading goes on."""


class ConnectionCutError(ConnectionResetError):
    """The connection that a body comes over ended before the body did."""

    def __init__(self) -> None:
        super().__init__("the connection ended before the body did")


async def relay_answer(
    answer: aiohttp.ClientResponse, request: web.Request, writer: AbstractStreamWriter, silence: float
) -> None:
    """Write head and body of an answer, whose length is known. Both connections are used again.

    :raises ConnectionCutError: when the connection that it comes over ends before it does.
    :raises OSError: when the other one does.
    :raises TimeoutError: when nothing moved for so many seconds of silence.
    """
    writer.send_headers()
    connection, sink = answer.connection, request.transport
    if connection is None or connection.protocol is None or connection.transport is None:
        raise ConnectionCutError
    if sink is None:
        raise ConnectionResetError("the silo has hung up")
    read = _read_already(answer.content)
    connection.protocol.pause_reading()  # the library's time-out ends with it, too
    silos = request.protocol
    left = (answer.content_length or 0) - len(read)
    relay = Relay(connection.transport, left, _start(sink, read), lambda: silos.writing_paused)
    await relay.run(writer.drain, silence)
    answer.content.feed_eof()


async def relay_request(request: web.Request, writer: StreamWriter, silence: float) -> None:
    """Write head and body of a request, whose length is known. The silo's connection ends with the answer.

    :raises ConnectionCutError: when the connection that it comes over ends before it does.
    :raises OSError: when the other one does.
    :raises TimeoutError: when nothing moved for so many seconds of silence.
    """
    writer.send_headers()
    source, sink = request.transport, writer.transport
    if source is None:
        raise ConnectionCutError
    if sink is None:
        raise ConnectionResetError("the aggregator has hung up")
    read = _read_already(request.content)
    source.pause_reading()
    # The library still waits for this body, and would take the next request for it.
    request.protocol.close()
    left = (request.content_length or 0) - len(read)
    aggregators, ended = writer.protocol, request.content.feed_eof
    relay = Relay(source, left, _start(sink, read), lambda: aggregators.writing_paused, ended)
    await relay.run(writer.drain, silence)


def _read_already(content: aiohttp.StreamReader) -> bytes:
    """What the library has read; nothing may be awaited until it is kept from reading more."""
    read = bytearray()
    # To read makes room, whereupon the library parses more of what it has.
    while len(read) < content.total_bytes:
        read += content.read_nowait()
    return bytes(read)


def _start(sink: asyncio.WriteTransport, read: bytes) -> Callable[[bytes], object]:
    sink.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
    sink.write(read)
    return sink.write


class Relay(asyncio.BufferedProtocol):
    """Has a connection, which is not being read, while the rest of a body comes over it.

    :param length: bytes that are still to come.
    :param write: takes bytes, which it keeps or sends.
    :param is_full: whether nothing more is to be written for now.
    :param ended: called when the whole body was read, even if in vain: its sender reads an answer only after it.
        None for a connection that is used again; a failure breaks it, and so does a byte beyond the body, which would
        be taken for the next message.
    """

    def __init__(
        self,
        source: asyncio.Transport,
        length: int,
        write: Callable[[bytes], object],
        is_full: Callable[[], bool],
        ended: Callable[[], object] | None = None,
    ) -> None:
        self._source = source
        self._before: Any = source.get_protocol()
        self._left = length
        self._write = write
        self._is_full = is_full
        self._ended = ended
        self._moved = 0.0
        self._is_held = self._is_cut = self._is_in_vain = False
        self._news = asyncio.Event()

    async def run(self, drained: Callable[[], Awaitable[object]], silence: float) -> None:
        """Return when all bytes were written; the connection is then as it was before.

        :param drained: returns when more can be written.
        :param silence: longest time in which nothing is read, or the other side takes nothing.
        :raises ConnectionCutError: when the connection ends before.
        :raises TimeoutError: after such a silence.
        """
        self._moved = asyncio.get_running_loop().time()
        self._hand_to(self)
        self._go_on()
        try:
            await self._relay(drained, silence)
        except BaseException:
            # Nobody can tell any more where in the body this connection is.
            if self._ended is None:
                self._source.abort()
            else:
                self._is_in_vain = True
                self._source.resume_reading()
            raise

    async def _relay(self, drained: Callable[[], Awaitable[object]], silence: float) -> None:
        while self._left:
            self._news.clear()
            if self._is_cut:
                raise ConnectionCutError
            if self._is_held:
                async with asyncio.timeout(silence):
                    await drained()
                self._moved, self._is_held = asyncio.get_running_loop().time(), False
                self._source.resume_reading()
            await self._wait(silence)

    @override
    def get_buffer(self, _sizehint: int) -> Any:
        """Where to put what is read."""
        return _BUFFER[: min(self._left + (self._ended is None), BUFFER_BYTES)]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """Write what was read."""
        own = min(nbytes, self._left)
        self._left -= own
        self._moved = asyncio.get_running_loop().time()
        if not self._is_in_vain:
            # The other connection may keep it until it can be sent.
            self._write(bytes(_BUFFER[:own]))
        if nbytes > own:
            self._source.abort()
        self._go_on()

    def _go_on(self) -> None:
        """Check whether the body is over, and whether to read more now."""
        if not self._left:
            self._hand_to(self._before)
            self._news.set()
            if self._ended is not None:
                self._ended()
        elif self._is_full() and not self._is_in_vain:
            self._is_held = True
            self._source.pause_reading()
            self._news.set()

    @override
    def eof_received(self) -> None:
        self._cut()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The library hears of it too."""
        self._cut()
        self._before.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        """The library may write over the same connection."""
        self._before.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._before.resume_writing()

    def _hand_to(self, protocol: asyncio.BaseProtocol) -> None:
        self._source.pause_reading()  # how a protocol wants to be given bytes is looked at when reading begins
        self._source.set_protocol(protocol)
        self._source.resume_reading()

    def _cut(self) -> None:
        self._is_cut = True
        self._news.set()

    async def _wait(self, silence: float) -> None:
        """Wait for news of the body; as long as bytes arrive, that may take any time."""
        while not self._news.is_set():
            try:
                async with asyncio.timeout_at(self._moved + silence):
                    await self._news.wait()
            except TimeoutError:
                if asyncio.get_running_loop().time() >= self._moved + silence:
                    raise
