"""Large HTTP bodies, past aiohttp: into two buffers that stay, and out of a file in small pieces.

aiohttp passes each 100 to 200 KB of a body through a parser, a stream and a queue of byte strings, and costs twice the
CPU time of TLS with blocking sockets. So a connection gets another protocol for as long as a large body lasts: the
event loop decrypts right into its buffer, while the one before is worked on in a thread. Then aiohttp has the
connection again. It keeps heads, small bodies and bodies of unknown length.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from io import FileIO
from types import TracebackType
from typing import ClassVar

import aiohttp
import numpy as np
from aiohttp.base_protocol import BaseProtocol
from typing_extensions import override

LARGE_BYTES = 256 << 10
"""From this length on, what has not arrived of a body with its head pays for buffers of its own."""

MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 128 << 10, 512 << 10
"""Bounds of a connection's two buffers. A thread's start costs 20 µs, of which a second SHA-256 has 35 KB."""

ALL_BUFFERS_BYTES = 8 << 20
"""What the buffers of a body may take, times the bodies that arrive then: each further body has smaller ones."""

SENT_BYTES = 128 << 10
"""Amount that is sent at a time: what TLS makes of it stays in the processor's cache."""

LOOK_SECONDS = 0.25
"""Between two looks for what no event tells: that a peer is silent, or that aiohttp has given the request up."""


class LargeBody(asyncio.BufferedProtocol):
    """A connection's protocol until `length` more bytes have come: an iterator over them, in pieces.

    A piece may be used until the one after it was taken and a further one is asked for. So one is worked on while the
    next one arrives; when both are full, reading stops. Leave the block early, and what is still to come is read and
    dropped, so that the peer gets its answer.

    :param owner: aiohttp's protocol, which has the connection again after the last byte, and learns of its end.
    :param content: aiohttp's stream of this body, from which everything that had arrived was taken.
    :param length: bytes still to come, at least 1.
    :param ended: called after the last byte, before `owner` gets what follows.
    :param silence: most seconds without a byte while one is waited for.
    """

    open_now: ClassVar[int] = 0

    def __init__(
        self,
        transport: asyncio.Transport,
        owner: asyncio.Protocol,
        content: aiohttp.StreamReader,
        length: int,
        *,
        ended: Callable[[], None] = lambda: None,
        silence: float | None = None,
    ) -> None:
        self._transport, self._owner, self._content = transport, owner, content
        self._missing, self._ended, self._silence = length, ended, silence
        self._loop = asyncio.get_running_loop()
        self._free: deque[memoryview] = deque()
        self._filling: memoryview | None = None
        self._filled = 0
        self._full: deque[tuple[memoryview, int]] = deque()
        self._lent: deque[memoryview] = deque()
        self._dropping = self._lost = False
        self._waiter: asyncio.Future[None] | None = None
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LargeBody:
        """Take the connection over from aiohttp until the body has come."""
        LargeBody.open_now += 1
        self._filling = self._buffer()
        self._free.append(memoryview(b""))  # made when it is needed
        # Only a transport that begins to read looks at how its protocol takes bytes.
        self._transport.pause_reading()
        self._transport.set_protocol(self)
        self._transport.resume_reading()
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        LargeBody.open_now -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._missing and not self._lost:
            self._dropping, self._filled = True, 0
            # Not into a piece that was handed out: whoever is cancelled may have a thread that still reads it.
            self._free.appendleft(np.empty(MIN_BUFFER_BYTES, np.uint8).data)
            self._fill()

    def __aiter__(self) -> LargeBody:
        return self

    async def __anext__(self) -> memoryview:
        """The next piece of the body, and of one that breaks off also what came last.

        :raises Exception: what aiohttp has made of the connection's end, or `ConnectionResetError`.
        """
        if len(self._lent) == 2:
            self._free.append(self._lent.popleft())
            self._fill()
        while not self._full:
            if not self._missing:
                raise StopAsyncIteration
            if self._lost and self._filled:
                self._hand_over()
            elif self._lost or self._content.exception() is not None:
                raise self._content.exception() or ConnectionResetError("the body broke off")
            else:
                self._waiter = self._loop.create_future()
                await self._waiter
        buffer, count = self._full.popleft()
        self._lent.append(buffer)
        return buffer[:count]

    @override
    def get_buffer(self, _sizehint: int) -> memoryview:
        """Where the next bytes go: nothing of what follows the body."""
        assert self._filling is not None, "a paused transport reads"
        return self._filling[self._filled : self._filled + self._missing]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self._heard = self._loop.time()
        self._missing -= nbytes
        if not self._dropping:
            self._filled += nbytes
            if not self._missing or self._filling is None or self._filled == len(self._filling):
                self._hand_over()
        if not self._missing:
            self._give_back()
        elif self._filling is None:
            self._fill()
            if self._filling is None:
                self._transport.pause_reading()

    @override
    def eof_received(self) -> None:
        """The peer sends nothing more."""
        self._owner.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended in the middle of the body."""
        self._lost = True
        self._owner.connection_lost(exc)
        self._wake()

    @override
    def pause_writing(self) -> None:
        self._owner.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def _hand_over(self) -> None:
        """What the buffer has is a piece."""
        assert self._filling is not None
        self._full.append((self._filling, self._filled))
        self._filling, self._filled = None, 0
        self._wake()

    def _fill(self) -> None:
        """Go on reading, if there is a buffer for it."""
        if self._filling is not None or not self._free or not self._missing or self._lost:
            return
        self._filling = self._free.popleft()
        if not self._filling:
            self._filling = self._buffer()
        self._heard = self._loop.time()
        self._transport.resume_reading()

    def _buffer(self) -> memoryview:
        return np.empty(min(buffer_bytes(LargeBody.open_now), self._missing), np.uint8).data

    def _give_back(self) -> None:
        self._transport.pause_reading()
        self._transport.set_protocol(self._owner)
        self._ended()
        self._transport.resume_reading()
        self._content.feed_eof()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        waits = self._filling is not None and self._missing and not self._lost
        if self._silence is not None and waits and self._loop.time() - self._heard >= self._silence:
            self._content.set_exception(aiohttp.SocketTimeoutError("Timeout on reading data from socket"))
        if self._content.exception() is not None:
            self._wake()


def buffer_bytes(bodies: int) -> int:
    """Length of each of two buffers while so many bodies arrive."""
    return max(MIN_BUFFER_BYTES, min(MAX_BUFFER_BYTES, ALL_BUFFERS_BYTES // (2 * bodies)))


async def body_pieces(
    content: aiohttp.StreamReader,
    owner: BaseProtocol | None,
    length: int | None,
    headers: Mapping[str, str],
    *,
    ended: Callable[[], None] = lambda: None,
    silence: float | None = None,
) -> AsyncGenerator[bytes | memoryview]:
    """A body as it arrives, large or not; see `LargeBody` on the rest, and on how long a piece may be used.

    To be closed. Whoever makes one for a request or an answer returns it and wraps it in none of their own: closing
    that would leave this one open.

    :param owner: aiohttp's protocol of the connection; None when that has ended.
    :param length: what its head says of it.
    :raises aiohttp.ClientError: or `OSError`, as aiohttp's stream raises it, when it breaks off.
    """
    missing = 0 if length is None or "Transfer-Encoding" in headers else length - content.total_bytes
    if owner is None or owner.transport is None or missing < LARGE_BYTES:
        async for piece in content.iter_any():
            yield piece
        return
    begun = _received_pieces(content)
    # To take what had arrived lets aiohttp read on, and it may have received the rest by now.
    if missing := (length or 0) - content.total_bytes:
        if silence is not None:
            owner.pause_reading()  # aiohttp's own timer of silence stops with it
        with LargeBody(owner.transport, owner, content, missing, ended=ended, silence=silence) as rest:
            for piece in begun:
                yield piece
            async for large in rest:
                yield large
    else:
        for piece in begun:
            yield piece


def _received_pieces(content: aiohttp.StreamReader) -> list[bytes]:
    """What aiohttp has received of a body, which it has no more then."""
    pieces = []
    while piece := content.read_nowait():
        pieces.append(piece)
    return pieces


async def file_pieces(file: FileIO, begin: int, end: int) -> AsyncGenerator[memoryview]:
    """The bytes of a file from one place to another, in pieces to be sent.

    What the kernel has in memory is taken from there at once; for what lies on a disk, a thread waits.

    :raises OSError: when it cannot be read, or is shorter.
    """
    while begin < end:
        buffer = np.empty(min(SENT_BYTES, end - begin), np.uint8).data
        try:
            count = os.preadv(file.fileno(), [buffer], begin, os.RWF_NOWAIT)
        except OSError:  # not in memory, or a file system that cannot tell
            count = await asyncio.to_thread(os.preadv, file.fileno(), [buffer], begin)
        if not count:
            raise OSError(f"{file.name}: ends at {begin} of {end} bytes")
        begin += count
        yield buffer[:count]
