"""A listening socket that silos connect to, and how many connections anyone may hold.

A connection costs memory, a file and a TLS handshake before anything is known of who opened it. One over which no silo
has proven its identity yet is closed after some seconds, and only so many of these are kept: the oldest makes room,
for an honest silo proves itself with its first request. A silo has a number of connections of its own, so that neither
strangers nor another silo can take them. Behind a reverse proxy, several silos ask over one connection: it counts for
each of them, and is closed for none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from typing_extensions import override

from fedsilo.api.text import count_text
from fedsilo.errors import ManifestInvalid
from fedsilo.http.listening import listening_socket, refusal_reason

log = logging.getLogger("fedsilo.listener")

UNPROVEN_SECONDS = 10.0
"""Time from the start of a connection to the first proven request."""

MAX_UNPROVEN = 128
"""Connections without a proven request, handshakes included."""

MAX_PER_SILO = 16
"""Connections of one silo. Its guard uses two or three; others are left over when its network was interrupted."""

SWEEP_SECONDS = 1.0
"""Interval at which connections are closed whose time is up."""

NOTICE_SECONDS = 60.0
"""Shortest interval of lines in the log about closed connections: whoever opens them must not fill it."""

TLS_BYTES = 64 << 10
"""What TLS keeps of what nobody has asked for or the peer has not taken, before it waits: such buffers never shrink."""

FULL_SECONDS = 0.1
"""Pause when the process has no files left for connections."""


@dataclass
class _AcceptedConnection:
    """One connection that was accepted.

    :ivar close: breaks it, without waiting for the other side.
    """

    since: float
    close: Callable[[], object]


@dataclass
class ConnectionStore:
    """All open connections, of which those over a limit are closed, the oldest first.

    :param clock: monotonic seconds.
    :param per_silo: most connections of a silo.
    """

    clock: Callable[[], float] = time.monotonic
    per_silo: int = MAX_PER_SILO
    _unproven: dict[object, _AcceptedConnection] = field(default_factory=dict)
    _proven: dict[str, dict[object, _AcceptedConnection]] = field(default_factory=dict)
    _silos: dict[object, set[str]] = field(default_factory=dict)
    _closed: int = 0
    _noticed: float = float("-inf")

    def add(self, connection: object, close: Callable[[], object]) -> None:
        """A new connection, which has proven nothing."""
        if len(self._unproven) >= MAX_UNPROVEN:
            self.close_oldest()
        self._unproven[connection] = _AcceptedConnection(self.clock(), close)

    def prove(self, connection: object, silo: str) -> None:
        """A request over this connection was the silo's."""
        own = self._proven.setdefault(silo, {})
        if connection in own:
            return
        others = self._silos.get(connection)
        opened = (
            self._proven[next(iter(others))][connection] if others else self._unproven.pop(connection, None)
        )
        if opened is None:
            return
        if len(own) >= self.per_silo:
            self._give_up(silo, next(iter(own)))
        own[connection] = opened
        self._silos.setdefault(connection, set()).add(silo)

    def __len__(self) -> int:
        return len(self._unproven) + len(self._silos)

    def remove(self, connection: object) -> None:
        """The connection has ended."""
        self._unproven.pop(connection, None)
        for silo in self._silos.pop(connection, ()):
            del self._proven[silo][connection]

    def close_oldest(self) -> None:
        """Make room for another connection."""
        if self._unproven:
            self._close(self._unproven, next(iter(self._unproven)))

    def sweep(self) -> None:
        """Close the connections that have proven nothing in their time."""
        now = self.clock()
        for connection, opened in list(self._unproven.items()):
            if now - opened.since < UNPROVEN_SECONDS:
                break
            self._close(self._unproven, connection)
        if self._closed and now - self._noticed >= NOTICE_SECONDS:
            log.warning(
                "closed %s that proved no silo in time, or were too many (at most %d without a proof, and "
                "%d of a silo)",
                count_text(self._closed, "connection"),
                MAX_UNPROVEN,
                self.per_silo,
            )
            self._closed, self._noticed = 0, now

    def _give_up(self, silo: str, connection: object) -> None:
        """Count a connection no more for a silo, and close it if it is no other silo's either."""
        silos = self._silos[connection]
        silos.discard(silo)
        if silos:
            del self._proven[silo][connection]
        else:
            del self._silos[connection]
            self._close(self._proven[silo], connection)

    def _close(self, opened: dict[object, _AcceptedConnection], connection: object) -> None:
        self._closed += 1
        opened.pop(connection).close()


class Listener(web.BaseSite):
    """Accepts connections and keeps account of them from before their handshake to their end."""

    def __init__(
        self,
        runner: web.AppRunner,
        connections: ConnectionStore,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(runner, ssl_context=tls)
        self._connections = connections
        self._address = (host, port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None

    @property
    @override
    def name(self) -> str:
        """URL of the service."""
        host, port = self._address
        return f"{'http' if self._ssl_context is None else 'https'}://{host}:{port}"

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        assert self._listening is not None
        return int(self._listening.getsockname()[1])

    @override
    async def start(self) -> None:
        """Bind the address and accept connections from here on.

        :raises ManifestInvalid: when the address cannot be had, for example because another process has it.
        """
        await super().start()
        try:
            self._listening = listening_socket(*self._address)
        except (OSError, OverflowError) as error:
            host, port = self._address
            raise ManifestInvalid(
                f"host {host or '*'}, port {port}: cannot be listened on ({refusal_reason(error)}); name others"
            ) from error
        self._begin(self._accept(self._listening))
        self._begin(self._sweep())

    @override
    async def stop(self) -> None:
        """Stop accepting connections, and close those that have not finished their handshake."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        await super().stop()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no connection can be accepted: %s; the oldest without a proof is closed", error)
                self._connections.close_oldest()
                await asyncio.sleep(FULL_SECONDS)
                continue
            self._open(accepted)
            # Many that come at once take turns with the requests of those that are here.
            await asyncio.sleep(0)

    def _open(self, accepted: socket.socket) -> None:
        assert self._runner.server is not None
        connection = self._runner.server()
        transports: list[asyncio.Transport] = []

        async def shake_hands() -> None:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._ssl_context,
                ssl_handshake_timeout=None if self._ssl_context is None else UNPROVEN_SECONDS,
            )
            if self._ssl_context is not None:
                transport.set_write_buffer_limits(TLS_BYTES)
                transport.set_read_buffer_limits(TLS_BYTES)  # type: ignore[attr-defined]  # of transports of TLS only
            transports.append(transport)

        def forget_failed(_: asyncio.Task[None]) -> None:
            if not transports:  # a task that is cancelled before its first step has closed nothing itself
                self._connections.remove(connection)
                accepted.close()

        def close() -> None:
            if transports:
                transports[0].abort()
            else:
                handshake.cancel()

        handshake = self._begin(shake_hands())
        handshake.add_done_callback(forget_failed)
        self._connections.add(connection, close)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._connections.sweep()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # A handshake that fails is the other side's affair, and no news.
        with contextlib.suppress(asyncio.CancelledError):
            error = task.exception()
            if error is not None and not isinstance(error, OSError | TimeoutError):
                log.error("accepting connections failed", exc_info=error)
