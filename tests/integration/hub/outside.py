"""What lies between an institution and the hub: a server under a name of its own, and proxies of every temper."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from fedsilo.wire import Authority, issue_server, make_authority

HUB = "hub.example"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def tls_of(
    folder: Path,
    authority: Authority,
    names: list[str],
    begin: datetime.datetime | None = None,
    days: int = 90,
) -> ssl.SSLContext:
    """Settings of a server with a certificate that this authority issues."""
    folder.mkdir(parents=True, exist_ok=True)
    lifetime = datetime.timedelta(days=days)
    certificate, key = issue_server(authority, names, begin=begin, lifetime=lifetime)
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def saying(**answer: object) -> Handler:
    """Give every request this answer."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(**answer)  # type: ignore[arg-type]

    return handler


class Hub:
    """A server that answers what a test says.

    :ivar authority: that of its certificate.
    :ivar asked: paths of the requests.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority()
        self.asked: list[str] = []
        self.port = 0

    @property
    def ca(self) -> str:
        """What the invitation says."""
        return self.authority.cert_pem.decode()

    @property
    def url(self) -> str:
        """Its address outside, which no name server knows."""
        return f"https://{HUB}:{self.port}"

    @asynccontextmanager
    async def serving(
        self, handler: Handler, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> AsyncIterator[Hub]:
        """Answer requests to the hub; over TLS with a certificate for its name, unless told otherwise."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self.asked.append(request.path)
            return await handler(request)

        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            used = tls or tls_of(self.folder / "hub", self.authority, [HUB, "127.0.0.1"])
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=used).start()
            self.port = int(runner.addresses[0][1])
            yield self
        finally:
            await runner.cleanup()


@dataclass
class ConnectProxy:
    """An HTTP proxy in the institution, which alone knows where the hub is.

    :param login: `user:password` that it demands; None for none.
    :param status: what it answers to CONNECT instead of connecting.
    :param inspects: settings with which it ends TLS itself; None where it passes bytes on.
    :param name: of the server's certificate, where TLS is looked into.
    :param silent: it takes connections and says nothing.
    :ivar asked: what it was asked to connect to.
    """

    login: str | None = None
    status: int | None = None
    inspects: ssl.SSLContext | None = None
    name: str = HUB
    silent: bool = False
    asked: list[str] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serving(self, authority: Authority | None = None) -> AsyncIterator[ConnectProxy]:
        """Take connections as a forward proxy.

        :param authority: of the hub, where TLS is looked into.
        """
        open_ones: dict[asyncio.StreamWriter, asyncio.Event] = {}

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_ones[writer] = asyncio.Event()
            with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
                await self._serve(reader, writer, authority)
            open_ones.pop(writer).set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer, ended in list(open_ones.items()):
                writer.transport.abort()
                await ended.wait()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: Authority | None
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if self.silent:
            await reader.read()
            return
        method, target, _ = head.split(" ", 2)
        assert method == "CONNECT"
        self.asked.append(target)
        status = self.status
        if self.login is not None:
            wanted = f"Proxy-Authorization: Basic {b64encode(self.login.encode()).decode()}\r\n"
            status = status if wanted in head else 407
        if status is not None:
            writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            return
        port = int(target.rpartition(":")[2])
        trusted = ssl.create_default_context(cadata=authority.cert_pem.decode()) if authority else None
        name = self.name if trusted else None
        there, onward = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=name)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with closing(onward):
            await writer.drain()
            if self.inspects is not None:
                await writer.start_tls(self.inspects)
            await asyncio.gather(_pass(reader, onward), _pass(there, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer), suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
