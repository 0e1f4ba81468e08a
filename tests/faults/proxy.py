"""A name for an aggregator: a TCP proxy whose connections a test can cut, and whose target can move."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

PIECE_BYTES = 1 << 16


class Proxy:
    """Forwards connections to a port of this machine, from a thread of its own, until it is closed.

    :param target: port that connections go to; may be set to another, which those that come then go to.
    :param cuts: numbers of bytes, of all connections and both directions; when as many have passed, every connection
        is reset, and the next number counts from there.
    """

    def __init__(self, target: int, cuts: Sequence[int] = ()) -> None:
        self.target = target
        self.passed = 0
        self.resets = 0
        self._cuts = list(cuts)
        self._left = self._cuts.pop(0) if self._cuts else None
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve_connection, "127.0.0.1", 0), self._loop
        )
        self._server = listening.result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Cut every connection and take no more."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            self._open -= {writer, back}
            for end in (writer, back):
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(PIECE_BYTES):
                await self._pass_on(piece, writer)
            writer.write_eof()
        except OSError:
            # The other side must learn of a reset, too, or it would wait for its timeout.
            writer.transport.abort()

    async def _pass_on(self, piece: bytes, writer: asyncio.StreamWriter) -> None:
        if self._left is not None and len(piece) >= self._left:
            piece, cut = piece[: self._left], True
        else:
            cut = False
        if self._left is not None:
            self._left -= len(piece)
        self.passed += len(piece)
        writer.write(piece)
        await writer.drain()
        if cut:
            self._left = self._cuts.pop(0) if self._cuts else None
            self.resets += 1
            self._reset()
            raise ConnectionResetError

    def _reset(self) -> None:
        for end in self._open:
            end.transport.abort()
