"""Connections between guards and aggregator in memory: the real client and the real server at their ends.

A connection carries one request. What happens to it is a `Mishap`, found by the silo and the number of its request.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from typing_extensions import override

from tests.protocol.plan import Mishap

LATENCY_SECONDS = 0.001
"""Time that bytes take from one end to the other."""

NOBODY = contextvars.Context()
"""In which the network itself works: no process."""


class NoSocket:
    """Takes options, which have no effect: no kernel looks after a connection in memory."""

    family = socket.AF_UNSPEC

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Take an option of `socket.socket` without effect."""


class End(asyncio.Transport):
    """One end of a connection, with the process's context in which its protocol runs."""

    peer: End

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, mishap: Mishap | None
    ) -> None:
        super().__init__()
        self.context = contextvars.copy_context()
        self.sent = bytearray()
        self._loop = loop
        self._protocol: Any = protocol
        self._mishap = mishap
        self._arrived: deque[bytes] = deque()
        self._paused = self._closing = self._lost = self._handing = False
        self._last = 0.0

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The address of the other end; what stands for a socket."""
        known = {"peername": ("memory", 0), "sockname": ("memory", 0), "socket": NoSocket()}
        return known.get(name, default)

    @override
    def is_closing(self) -> bool:
        """Whether it takes nothing more to send."""
        return self._closing

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def get_protocol(self) -> Any:
        """Whose end this is."""
        return self._protocol

    @override
    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    @override
    def write(self, data: Any) -> None:
        """Send, as far as the mishap lets it."""
        if self._closing or not data:
            return
        begin, piece = len(self.sent), bytes(data)
        self.sent += piece
        mishap = self._mishap
        if mishap is None or mishap.kind not in ("cut", "silent"):
            self._deliver_later(self._deliver, piece)
        elif begin <= mishap.after:
            self._deliver_later(self._deliver, piece[: mishap.after - begin])
            if len(self.sent) > mishap.after and mishap.kind == "cut":
                self._deliver_later(self.cut)

    @override
    def pause_reading(self) -> None:
        self._paused = True

    @override
    def resume_reading(self) -> None:
        """Hand over what has arrived."""
        self._paused = False
        self._hand_over(again=False)

    @override
    def is_reading(self) -> bool:
        """Whether what arrives is handed over."""
        return not self._paused

    @override
    def close(self) -> None:
        """End the connection once everything is sent."""
        self._leave(None, None)

    @override
    def abort(self) -> None:
        """End the connection at once."""
        self._leave(ConnectionResetError("aborted"), ConnectionResetError("reset by the peer"))

    def die(self) -> None:
        """The process of this end is no more; its system tells the other side."""
        if not self._lost:
            self._closing = True
            self._deliver_later(self.peer.hang_up, ConnectionResetError("the peer has died"))
            self._lose(ConnectionResetError("dead"))

    def hang_up(self, error: Exception | None) -> None:
        """The other end has gone."""
        if self._lost:
            return
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._paused = False  # what came before is still read
        self.context.run(self._hand_over, again=True)
        if error is None and not self._closing:
            self.context.run(self._protocol.eof_received)
        self._lose(error)

    def _leave(self, mine: Exception | None, others: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose, mine, context=NOBODY)
            if self._mishap is None or self._mishap.kind != "silent":
                self._deliver_later(self.peer.hang_up, others)

    def _deliver(self, data: bytes) -> None:
        peer = self.peer
        if peer._closing or not data:
            return
        peer._arrived.append(data)
        peer.context.run(peer._hand_over, again=False)

    def _hand_over(self, *, again: bool) -> None:
        """Give the protocol what has arrived, until it has enough.

        :param again: also while it is being given something.
        """
        if self._handing and not again:
            return
        self._handing = True
        try:
            while self._arrived and not self._paused and not self._lost:
                data, protocol = self._arrived.popleft(), self._protocol
                if isinstance(protocol, asyncio.BufferedProtocol):
                    buffer = memoryview(protocol.get_buffer(len(data)))
                    count = min(len(buffer), len(data))
                    buffer[:count] = data[:count]
                    if data[count:]:
                        self._arrived.appendleft(data[count:])
                    protocol.buffer_updated(count)
                else:
                    protocol.data_received(data)
        finally:
            self._handing = False

    def cut(self) -> None:
        """The connection breaks, and both ends learn of it."""
        for end in (self, self.peer):
            end.hang_up(ConnectionResetError("the network was cut"))

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self.context.run(self._protocol.connection_lost, error)

    def _deliver_later(self, deliver: Callable[..., None], *arguments: Any) -> None:
        """In the order of writing, whatever the delay."""
        late = self._mishap.seconds if self._mishap is not None and self._mishap.kind == "late" else 0.0
        self._last = max(self._last + 1e-6, self._loop.time() + LATENCY_SECONDS + late)
        self._loop.call_at(self._last, deliver, *arguments, context=NOBODY)


class Network:
    """Carries requests of silos to whatever serves as the aggregator at that time.

    :param mishaps: (silo, number of its request) -> what happens to it.
    :ivar happened: mishaps that took effect.
    :ivar requests: that reached the aggregator, or would have.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, mishaps: Mapping[tuple[str, int], Mishap]) -> None:
        self.happened: Counter[str] = Counter()
        self.requests = 0
        self._loop = loop
        self._mishaps = mishaps
        self._numbers: Counter[str] = Counter()
        self._ends: list[tuple[object, End]] = []
        self._listener: tuple[object, contextvars.Context, Callable[[], asyncio.Protocol]] | None = None
        self._links: dict[str, list[End]] = {}
        self._cut_off: set[str] = set()

    def cut_off(self, silo: str) -> None:
        """From now on nothing of this silo arrives, or to it."""
        self._cut_off.add(silo)
        for end in self._links.pop(silo, []):
            end.cut()

    def link(self, silo: str) -> None:
        """Let a silo's connections through again after `cut_off`."""
        self._cut_off.discard(silo)

    def listen(self, process: object, accept: Callable[[], asyncio.Protocol]) -> None:
        """From now on, connect silos to this process.

        :param accept: makes a protocol for a new connection.
        """
        self._listener = process, contextvars.copy_context(), accept

    def connect(self, process: object, silo: str, protocol: asyncio.Protocol) -> None:
        """Connect a silo's client.

        :raises ConnectionRefusedError: while no aggregator listens, or the silo is cut off.
        """
        self._numbers[silo] += 1
        mishap = self._mishaps.get((silo, self._numbers[silo]))
        if self._listener is None or silo in self._cut_off:
            raise ConnectionRefusedError("nobody listens")
        self.requests += 1
        near = End(self._loop, protocol, mishap if mishap and mishap.way == "request" else None)
        self._accept(near, mishap if mishap and mishap.way == "response" else None)
        self._ends.append((process, near))
        open_ones = [end for end in self._links.get(silo, []) if not end.is_closing()]
        self._links[silo] = [*open_ones, near]
        protocol.connection_made(near)
        if mishap is not None:
            self.happened[f"{mishap.way} {mishap.kind}"] += 1
            if mishap.kind == "again":
                self._loop.call_later(mishap.seconds + 0.1, self._repeat, near.sent, context=NOBODY)

    def disconnect(self, process: object) -> None:
        """The process is no more."""
        if self._listener is not None and self._listener[0] is process:
            self._listener = None
        for owner, end in self._ends:
            if owner is process:
                end.die()
        self._ends = [(owner, end) for owner, end in self._ends if not end.is_closing()]

    def _accept(self, near: End, mishap: Mishap | None) -> None:
        assert self._listener is not None
        process, context, accept = self._listener

        def make_end() -> End:
            protocol = accept()
            far = End(self._loop, protocol, mishap)
            near.peer, far.peer = far, near
            protocol.connection_made(far)
            return far

        self._ends.append((process, context.copy().run(make_end)))

    def _repeat(self, request: bytearray) -> None:
        """Something between the two sends what it has seen once more, and is deaf for the answer."""
        if self._listener is not None and request:
            near = End(self._loop, asyncio.Protocol(), None)
            self._accept(near, None)
            near.write(bytes(request))


class MemoryConnector(aiohttp.BaseConnector):
    """What a guard's client connects with, one connection for each request."""

    def __init__(self, network: Network, process: object, silo: str) -> None:
        super().__init__(force_close=True)
        self._network = network
        self._process = process
        self._silo = silo

    @override
    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        protocol: ResponseHandler = self._factory()
        try:
            self._network.connect(self._process, self._silo, protocol)
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return protocol
